#!/usr/bin/env python3
"""Measures thirty Python workers beside a backlog of a million jobs on PostgreSQL.

    bench/python/backlog.py --server URL [--jobs 1000000] [--few 100000] [--workers 30] [--processes 3] [--seconds 20]

The interpreter that runs it has a release wheel of qo, and psycopg. The schema `qo_bench_backlog` of the server is replaced.

1. A fresh schema; jobs that do nothing are submitted by `submit_many`; `VACUUM ANALYZE` and a checkpoint.
2. The workers start: each a worker of its own, with its own session, a few of them in a process, at their defaults.
3. When each has run a job, the clock starts. After `--seconds`, or when no job is left, it stops: the rate is that of
   the jobs' own records.

That is done with `--jobs` and with `--few`, which runs to the last job. Exit status: 0, or 1 if a worker ended early.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SCHEMA = "qo_bench_backlog"
CALL = 10_000
LOOK = 0.1
WARMING = 120.0


async def submit(url: str, jobs: int) -> float:
    """Fill a fresh namespace. Returns how long that took."""
    import qo  # noqa: PLC0415 -- not for --help

    app = qo.App(url, name="bench")

    @app.task("noop")
    async def noop() -> None: ...

    await app.client.migrate()
    began = time.perf_counter()
    for first in range(0, jobs, CALL):
        await noop.submit_many([{}] * min(CALL, jobs - first))
    return time.perf_counter() - began


async def work(url: str, workers: int) -> None:
    """Run workers in this process, and print every tenth of a second how many jobs each has run."""
    import qo  # noqa: PLC0415

    counts = [0] * workers

    def made(number: int) -> qo.App:
        app = qo.App(url, name=f"bench-{number}")

        @app.task("noop")
        async def noop() -> None:
            counts[number] += 1

        return app

    running = [asyncio.ensure_future(made(number).run(until_signal=False)) for number in range(workers)]
    while not any(worker.done() for worker in running):
        print(json.dumps([time.monotonic(), counts]), flush=True)
        await asyncio.sleep(LOOK)
    await asyncio.gather(*running)


class Process:
    """A process with some of the workers, and what it said last."""

    def __init__(self, url: str, workers: int) -> None:
        command = [sys.executable, __file__, "--server", url, "--work", str(workers)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._buffer = b""
        self.counts = [0] * workers
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)

    def look(self) -> None:
        """Read what it has said."""
        if self._process.poll() is not None:
            message = f"a worker ended with {self._process.returncode}"
            raise RuntimeError(message)
        said = self._process.stdout.read() if self._process.stdout is not None else None
        *lines, self._buffer = (self._buffer + (said or b"")).split(b"\n")
        if lines:
            self.counts = json.loads(lines[-1])[1]

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def measure(url: str, jobs: int, workers: int, processes: int, seconds: float) -> float:
    """Return the rate, in jobs a second."""
    shares = [workers // processes + (number < workers % processes) for number in range(processes)]
    fleet = [Process(url, share) for share in shares]

    def total() -> int:
        for process in fleet:
            process.look()
        return sum(sum(process.counts) for process in fleet)

    try:
        deadline = time.monotonic() + WARMING
        while total() < jobs and not all(min(process.counts) for process in fleet):
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK)
        first, began = total(), time.monotonic()
        last = first
        while last < jobs and time.monotonic() < began + seconds:
            time.sleep(LOOK)
            last = total()
        return (last - first) / (time.monotonic() - began)
    finally:
        for process in fleet:
            process.end()


def settle(server: str, *, drop: bool) -> None:
    """Remove the schema, or bring it into the state of a server that has had it for a while."""
    program = Path(__file__).resolve().parent / "sides" / "server.py"
    environment = os.environ | {"BENCH_SERVER": server}
    subprocess.run([sys.executable, program, "drop" if drop else "settle", SCHEMA], check=True, env=environment)


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", required=True, metavar="URL")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=30)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        asyncio.run(work(options.server, options.work))
        return 0
    url = f"{options.server}?schema={SCHEMA}"
    for jobs in (options.few, options.jobs):
        settle(options.server, drop=True)
        took = asyncio.run(submit(url, jobs))
        settle(options.server, drop=False)
        rate = measure(url, jobs, options.workers, options.processes, options.seconds)
        print(
            f"{jobs:,} jobs waiting, {options.workers} workers in {options.processes} processes: {rate:,.0f} jobs/s; "
            f"submitted in {took:.1f} s ({jobs / took:,.0f}/s)",
            flush=True,
        )
    settle(options.server, drop=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
