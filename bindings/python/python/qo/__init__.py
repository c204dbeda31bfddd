"""qo: a job queue that decides how much may run at once, across a whole fleet, exactly.

Names of `qo` are for asyncio; `qo.sync` has the same ones without it.
"""

from typing import TYPE_CHECKING, Any

from ._app import App, get_default, set_default
from ._client import Client, JobFilter, connect
from ._concurrency import Concurrency, ConcurrencyManager
from ._config import AppConfig, CustomQueueConfig, PostgresConfig, QueueMode
from ._context import Context, current
from ._errors import (
    BadData,
    Conflict,
    Fail,
    Fenced,
    Internal,
    Invalid,
    JobCancelled,
    JobEnded,
    JobExpired,
    JobFailed,
    LimitReached,
    NotFound,
    PermanentError,
    QoError,
    RescheduleError,
    Retry,
    RetryableError,
    Snooze,
    Unavailable,
    UnknownOption,
    UnknownOutcome,
)
from ._explanation import Explanation, Reason
from ._handle import JobHandle, KeptJob, NewJob
from ._job import Job
from ._options import Backoff, SubmitOptions
from ._plain import Worker
from ._settings import WorkerOptions
from ._slot import Slot
from ._task import SkippingTask, Task
from ._tasks import Tasks
from ._views import (
    Attempt,
    ConcurrencyStatus,
    GroupInfo,
    HeldSlot,
    JobInfo,
    Page,
    Progress,
    QueueInfo,
    Run,
    ScheduleInfo,
    SlotInfo,
    StepInfo,
    WorkerInfo,
    WorkflowInfo,
)
from ._workflow import Workflow

if TYPE_CHECKING:
    from . import sync

    __version__: str

__all__ = [
    "App",
    "AppConfig",
    "Attempt",
    "Backoff",
    "BadData",
    "Client",
    "Concurrency",
    "ConcurrencyManager",
    "ConcurrencyStatus",
    "Conflict",
    "Context",
    "CustomQueueConfig",
    "Explanation",
    "Fail",
    "Fenced",
    "GroupInfo",
    "HeldSlot",
    "Internal",
    "Invalid",
    "Job",
    "JobCancelled",
    "JobEnded",
    "JobExpired",
    "JobFailed",
    "JobFilter",
    "JobHandle",
    "JobInfo",
    "KeptJob",
    "LimitReached",
    "NewJob",
    "NotFound",
    "Page",
    "PermanentError",
    "PostgresConfig",
    "Progress",
    "QoError",
    "QueueInfo",
    "QueueMode",
    "Reason",
    "RescheduleError",
    "Retry",
    "RetryableError",
    "Run",
    "ScheduleInfo",
    "SkippingTask",
    "Slot",
    "SlotInfo",
    "Snooze",
    "StepInfo",
    "SubmitOptions",
    "Task",
    "Tasks",
    "Unavailable",
    "UnknownOption",
    "UnknownOutcome",
    "Worker",
    "WorkerInfo",
    "WorkerOptions",
    "Workflow",
    "WorkflowInfo",
    "connect",
    "current",
    "get_default",
    "set_default",
    "sync",
]

# Errors and tracebacks name what users import.
for _public in list(vars().values()):
    if isinstance(_public, type) and _public.__module__.startswith("qo._"):
        _public.__module__ = "qo"


def __getattr__(name: str) -> Any:
    """Import `qo.sync`, and look for the version, when they are first used."""
    if name == "sync":
        import importlib  # noqa: PLC0415

        return importlib.import_module("qo.sync")
    if name == "__version__":
        from importlib import metadata  # noqa: PLC0415

        return metadata.version("qo-queue")
    raise AttributeError(f"module 'qo' has no attribute {name!r}")
