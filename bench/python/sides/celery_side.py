"""What is done with Celery, besides its worker.

celery_side.py submit noop JOBS    empties the Redis and submits jobs without arguments
"""

from __future__ import annotations

import sys

from celery_jobs import KEEPS_RESULTS, URL, app, noop
from redis import Redis


def submit(jobs: int) -> None:
    """Submit jobs, all by one connection."""
    Redis.from_url(URL).flushall()
    with app.producer_or_acquire() as producer:
        for _ in range(jobs):
            noop.apply_async(producer=producer)


class Settled:
    """Says whether every message is acknowledged and, where results are kept, has its result."""

    def __init__(self) -> None:
        self._broker = Redis.from_url(f"{URL}/0")
        self._backend = Redis.from_url(f"{URL}/1")

    async def open(self) -> None:
        """Connect."""
        self._broker.ping()
        self._backend.ping()

    async def left(self, jobs: int) -> int:
        """Return how many jobs have not ended, in the Redis."""
        waiting = self._broker.llen("celery") + self._broker.hlen("unacked")
        # The backend has a database of its own: its keys are the results.
        missing = jobs - self._backend.dbsize() if KEEPS_RESULTS else 0
        return int(waiting) + max(0, missing)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["submit", "noop", count]:
            submit(int(count))
        case _:
            sys.exit(__doc__)
