"""What a process records of the jobs that it ran: how many, when the first began and when the last ended.

The record is a small file, mapped into memory: a job costs a lock and a few stores, and the record survives however
the process ends. All Python sides use it, so that it costs all of them the same. The times are those of the machine's
monotonic clock, which all processes share.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path

FORM = struct.Struct("<QQQ")
now_ns = time.monotonic_ns


class Record:
    """The record of this process. Its file is made by the first job, so that a forked child has one of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None
        self._count = 0
        self._first = 0

    def add(self, began: int) -> None:
        """Count a job that ends now."""
        with self._lock:
            if self._map is None:
                self._map = _mapped(Path(os.environ["BENCH_RECORDS"]) / str(os.getpid()))
                self._first = began
            self._count += 1
            self._first = min(self._first, began)
            FORM.pack_into(self._map, 0, self._count, self._first, now_ns())


def _mapped(path: Path) -> mmap.mmap:
    # The file appears with its full size: a reader never sees half of it.
    fresh = path.with_suffix(".new")
    fresh.write_bytes(bytes(FORM.size))
    fresh.rename(path)
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), FORM.size)


def read(folder: Path) -> tuple[int, int, int]:
    """Return the number of jobs of all processes, the first beginning and the last end."""
    records = [FORM.unpack(path.read_bytes()) for path in folder.iterdir() if path.suffix != ".new"]
    begun = [record for record in records if record[0]]
    count = sum(record[0] for record in begun)
    return count, min((record[1] for record in begun), default=0), max((record[2] for record in begun), default=0)


RECORD = Record()
