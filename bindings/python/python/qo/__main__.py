"""`python -m qo` is `qo`."""

import sys

from ._command import main

sys.exit(main())
