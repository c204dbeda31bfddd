#!/usr/bin/env python3
"""Builds the Python package and tests it as its users have it.

    scripts/test_python.py [PYTEST_ARGUMENT...]

1. Makes a virtual environment in a temporary folder, and installs the tools.
2. Builds the wheel, with the profile of the tests, and installs it there.
3. Checks the package with ruff and mypy.
4. Runs the suite and the examples of the docstrings, outside of the checkout.

It needs the servers that scripts/with_postgres.py and scripts/with_s3.py start.

Exit status: 0 if all is well, 1 if a check or a test failed, 2 if the build
failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bindings" / "python"
TOOLS = ["maturin==1.16.0", "mypy==2.4.1", "pytest==9.2.0", "ruff==0.17.5", "typing-extensions==4.16.0"]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="qo-python-") as folder:
        return test(Path(folder), sys.argv[1:])


def test(folder: Path, arguments: list[str]) -> int:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    build = [python, "-m", "maturin", "build", "--quiet", "--locked", "--profile", "dev", "--out", folder / "wheels"]
    for command in ([*pip, *TOOLS], [*build, "--manifest-path", PACKAGE / "Cargo.toml"]):
        if subprocess.run(command, check=False).returncode != 0:
            return 2
    wheel = next((folder / "wheels").glob("*.whl"))
    if subprocess.run([*pip, wheel], check=False).returncode != 0:
        return 2
    # Not from the checkout: there `import qo` would find the sources, without the extension.
    shutil.copytree(PACKAGE / "tests", folder / "tests")
    shutil.copy(PACKAGE / "pyproject.toml", folder)
    run = [
        [python, "-m", "ruff", "check", "--quiet", PACKAGE],
        [python, "-m", "ruff", "format", "--check", "--quiet", PACKAGE],
        [python, "-m", "mypy", "--config-file", PACKAGE / "pyproject.toml", "-p", "qo"],
        [python, "-m", "pytest", "--doctest-modules", "--pyargs", "qo"],
        [python, "-m", "pytest", "--durations", "10", *(arguments or ["tests"])],
    ]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    failed = [command for command in run if subprocess.run(command, cwd=folder, env=environment, check=False).returncode != 0]
    for command in failed:
        print("FAILED:", *command, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
