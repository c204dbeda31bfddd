"""The app of Celery: `celery -A celery_jobs worker`."""

from __future__ import annotations

import os

from celery import Celery
from record import RECORD, now_ns

URL = os.environ["BENCH_REDIS"]
KEEPS_RESULTS = os.environ.get("BENCH_RESULTS") == "1"

app = Celery("bench", broker=f"{URL}/0", backend=f"{URL}/1" if KEEPS_RESULTS else None)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_ignore_result=not KEEPS_RESULTS,
    worker_send_task_events=False,
)


@app.task(name="noop")
def noop() -> None:
    """Do nothing."""
    RECORD.add(now_ns())
