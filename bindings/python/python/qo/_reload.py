"""`qo worker --reload`: restarts the worker when a source file changes. For development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERY_SECONDS = 0.5
# Folders whose files are no sources of the app.
_OTHERS = {"__pycache__", "node_modules", "site-packages", "venv", "target", "build", "dist"}


def sources(folder: Path) -> Iterator[Path]:
    """Find the source files below a folder."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _OTHERS]
        yield from (Path(place, name) for name in files if name.endswith((".py", ".toml")))


def stamps(folder: Path) -> dict[Path, int]:
    """Tell when each source file was changed last."""
    found: dict[Path, int] = {}
    for source in sources(folder):
        # It may be gone by now.
        with suppress(OSError):
            found[source] = source.stat().st_mtime_ns
    return found


class Worker:
    """The worker process, and its end."""

    def __init__(self, arguments: list[str]) -> None:
        self._command = [sys.executable, "-m", "qo", *arguments]
        # Ctrl-C is for this process, which passes it on once.
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, start_new_session=True)  # noqa: S603

    def stop(self) -> int:
        """Let it drain, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait()

    def start(self) -> None:
        """Start it again."""
        self._process = self._start()

    def tell(self, number: int) -> None:
        """Pass on a signal."""
        self._process.send_signal(number)

    def ended(self) -> int | None:
        """Return its exit code, if it has ended."""
        return self._process.poll()


def reload(arguments: list[str]) -> int:
    """Run a worker, and restart it whenever a source file below this directory changes."""
    worker = Worker(arguments)
    told = 0

    def tell(number: int, _: Any) -> None:
        nonlocal told
        told += 1
        worker.tell(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, tell)
    seen = stamps(Path.cwd())
    while True:
        time.sleep(_EVERY_SECONDS)
        code = worker.ended()
        if told and code is not None:
            return code
        now = stamps(Path.cwd())
        if now != seen and not told:
            changed = sorted({path for path, _ in now.items() ^ seen.items()})
            seen = now
            sys.stderr.write(f"qo: {changed[0].relative_to(Path.cwd())} has changed: the worker starts again\n")
            code = worker.stop()
            if told:
                # A signal that came meanwhile was for the worker that is gone.
                return code
            worker.start()
