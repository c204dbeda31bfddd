"""What is done with procrastinate, besides its worker.

procrastinate_side.py submit noop JOBS    makes its tables and submits jobs without arguments
"""

from __future__ import annotations

import asyncio
import sys

import psycopg
from procrastinate_jobs import SCHEMA, SEARCH_PATH, SERVER, app, noop

CALL = 1_000


async def submit(jobs: int) -> None:
    """Submit jobs, by its batches."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for first in range(0, jobs, CALL):
            await noop.batch_defer_async(*[{} for _ in range(min(CALL, jobs - first))])


class Settled:
    """Says whether every job has ended in the database."""

    def __init__(self) -> None:
        self._connection: psycopg.AsyncConnection | None = None

    async def open(self) -> None:
        """Connect."""
        self._connection = await psycopg.AsyncConnection.connect(SERVER, options=SEARCH_PATH, autocommit=True)

    async def left(self, _: int) -> int:
        """Return how many jobs have not ended, in the database."""
        if self._connection is None:
            message = f"not connected to {SCHEMA}"
            raise RuntimeError(message)
        query = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        row = await (await self._connection.execute(query)).fetchone()
        return 0 if row is None else int(row[0])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["submit", "noop", count]:
            asyncio.run(submit(int(count)))
        case _:
            sys.exit(__doc__)
