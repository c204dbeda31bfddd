"""What is done with qo from Python, besides its worker.

qo_side.py submit TASK JOBS        submits jobs without arguments
qo_side.py submit-many JOBS CALLS  times calls of submit_many; prints the seconds of each as JSON
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from qo_jobs import app, charge, noop, noop_def, sleep

URL = "https://example.com/callback"
CALL = 1_000
TASKS = {"noop": noop, "noop_def": noop_def, "sleep": sleep}


async def submit(task: str, jobs: int) -> None:
    """Submit jobs of a task."""
    await app.client.migrate()
    for first in range(0, jobs, CALL):
        await TASKS[task].submit_many([{} for _ in range(min(CALL, jobs - first))])


async def submit_many(jobs: int, calls: int) -> list[float]:
    """Time calls of submit_many, from the making of the arguments to the handles. A small call opens the store."""
    await app.client.migrate()
    await charge.submit_many([(customer, URL) for customer in range(100)])
    seconds = []
    for _ in range(calls):
        began = time.perf_counter()
        handles = await charge.submit_many([(customer, URL) for customer in range(jobs)])
        seconds.append(time.perf_counter() - began)
        if len(handles) != jobs:
            message = f"{len(handles)} of {jobs} jobs were submitted"
            raise RuntimeError(message)
    return seconds


class Settled:
    """Says whether every job of the namespace is settled."""

    def __init__(self) -> None:
        self._client = app.client

    async def open(self) -> None:
        """Connect."""
        await self._client.queues()

    async def left(self, _: int) -> int:
        """Return how many jobs have not ended, in the store."""
        queues = await self._client.queues()
        return sum(queue.running + queue.claimed + queue.due + queue.scheduled + queue.waiting for queue in queues)


async def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    match arguments:
        case ["submit", task, jobs]:
            await submit(task, int(jobs))
        case ["submit-many", jobs, calls]:
            print(json.dumps(await submit_many(int(jobs), int(calls))))
        case _:
            sys.exit(__doc__)
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
