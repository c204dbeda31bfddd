"""The app of qo: `qo worker qo_jobs:app`."""

from __future__ import annotations

import asyncio
import os

import qo
from record import RECORD, now_ns

app = qo.App(os.environ["BENCH_STORE"], name="bench")


@app.task("noop")
async def noop() -> None:
    """Do nothing."""
    RECORD.add(now_ns())


@app.task("noop_def")
def noop_def() -> None:
    """Do nothing, in a thread or in a child process."""
    RECORD.add(now_ns())


@app.task("sleep")
async def sleep() -> None:
    """Wait for a second."""
    began = now_ns()
    await asyncio.sleep(1)
    RECORD.add(began)


@app.task("charge")
async def charge(customer: int, url: str) -> None:
    """Stand for a job with arguments. It is submitted, and never run."""
