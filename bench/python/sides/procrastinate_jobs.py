"""The app of procrastinate: `procrastinate --app procrastinate_jobs.app worker`."""

from __future__ import annotations

import os

from procrastinate import App, PsycopgConnector
from record import RECORD, now_ns

SERVER = os.environ["BENCH_SERVER"]
SCHEMA = os.environ["BENCH_SCHEMA"]
POOL = int(os.environ.get("BENCH_POOL", "4"))
SEARCH_PATH = f"-c search_path={SCHEMA}"

app = App(
    connector=PsycopgConnector(
        conninfo=SERVER,
        kwargs={"options": SEARCH_PATH},
        min_size=POOL,
        max_size=POOL,
    )
)


@app.task(name="noop")
async def noop() -> None:
    """Do nothing."""
    RECORD.add(now_ns())
