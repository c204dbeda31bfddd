"""The pytest plugin: a fixture `qo_app`. It works with pytest-asyncio, anyio and without either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from .testing import TestApp


@pytest.fixture
def qo_app() -> Generator[TestApp, None, None]:
    """Give the test a `qo.testing.TestApp` of its own."""
    from .testing import TestApp  # noqa: PLC0415 -- most tests do without it

    with TestApp() as app:
        yield app
