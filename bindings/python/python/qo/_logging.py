"""Logs: what a handler logs goes to its attempt, what Rust logs goes to `logging`."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timezone

from . import _qo
from ._context import CURRENT

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class AttemptHandler(logging.Handler):
    """Adds records that are made in a handler of a job to the log of its attempt."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record."""
        context = CURRENT.get(None)
        if context is None:
            return
        try:
            context.log(self.format(record))
        except Exception:  # noqa: BLE001 -- as every handler of logging does
            self.handleError(record)


_lock = threading.Lock()
_workers = 0
_handler = AttemptHandler()
_handler.setFormatter(logging.Formatter(_FORMAT))


def emit(level: int, name: str, text: str) -> None:
    """Take a line that Rust has logged."""
    logging.getLogger(name).log(level, "%s", text)


def forward() -> None:
    """Pass on what Rust logs, as far as the loggers `qo` and `qo.job` want it now."""
    levels = [logging.getLogger(name).getEffectiveLevel() for name in ("qo", "qo.job")]
    _qo.log_to(emit, *(min(level, 50) for level in levels))


class LineFormatter(logging.Formatter):
    """Writes a record as the lines of Rust beside it: moment in UTC, level, text."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        moment = datetime.fromtimestamp(record.created, tz=timezone.utc)
        # As Rust names it, and as wide.
        level = {"WARNING": "WARN", "CRITICAL": "ERROR"}.get(record.levelname, record.levelname)
        return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ} {level:>5} {super().format(record)}"


def show(*, quiet: bool) -> None:
    """Show what the app logs on stderr, unless it says how itself."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(LineFormatter("%(name)s: %(message)s"))
        logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, handlers=[handler])


def attach() -> None:
    """Begin: a worker starts."""
    global _workers  # noqa: PLW0603
    with _lock:
        _workers += 1
        if _workers == 1:
            logging.getLogger().addHandler(_handler)
    forward()


def detach() -> None:
    """End: a worker has ended."""
    global _workers  # noqa: PLW0603
    with _lock:
        _workers -= 1
        if _workers == 0:
            logging.getLogger().removeHandler(_handler)
