"""Watches a drain, and prints when its first job began, its last one ended, and all were settled, as JSON.

    watch.py SIDE JOBS SECONDS    SIDE is the module of a side: qo_side, celery_side, procrastinate_side

While jobs run it only reads the records, which costs the server nothing. It asks the store when all handlers have
ended, every few milliseconds, until the store says that no job is left. It writes "ready" when it is connected.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from pathlib import Path

from record import now_ns, read

LOOK = 0.02
ASK = 0.002


async def main(side: str, jobs: int, seconds: float) -> int:
    """Watch until all is settled, or the time is over."""
    folder = Path(os.environ["BENCH_RECORDS"])
    settled = importlib.import_module(side).Settled()
    await settled.open()
    print("ready", flush=True)
    deadline = time.monotonic() + seconds
    while (count := read(folder)[0]) < jobs:
        if time.monotonic() > deadline:
            print(f"{count} of {jobs} jobs have run after {seconds:.0f} s", file=sys.stderr)
            return 1
        await asyncio.sleep(LOOK)
    while left := await settled.left(jobs):
        if time.monotonic() > deadline:
            print(f"{left} of {jobs} jobs are not settled after {seconds:.0f} s", file=sys.stderr)
            return 1
        await asyncio.sleep(ASK)
    settled_ns = now_ns()
    count, first_ns, last_ns = read(folder)
    print(json.dumps({"count": count, "first_ns": first_ns, "last_ns": last_ns, "settled_ns": settled_ns}), flush=True)
    # A client of qo may still wait for changes: nothing is left to say.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
