"""qo: a job queue that decides how much may run at once, across a whole fleet, exactly."""

from ._app import App, Worker
from ._client import Client, Concurrency, JobHandle, connect
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
    UnknownOutcome,
)
from ._options import Backoff, SubmitOptions
from ._task import Task
from ._views import Attempt, ConcurrencyStatus, Explanation, JobInfo, SlotInfo

__all__ = [
    "App",
    "Attempt",
    "Backoff",
    "BadData",
    "Client",
    "Concurrency",
    "ConcurrencyStatus",
    "Conflict",
    "Context",
    "Explanation",
    "Fail",
    "Fenced",
    "Internal",
    "Invalid",
    "JobCancelled",
    "JobEnded",
    "JobExpired",
    "JobFailed",
    "JobHandle",
    "JobInfo",
    "LimitReached",
    "NotFound",
    "PermanentError",
    "QoError",
    "RescheduleError",
    "Retry",
    "RetryableError",
    "SlotInfo",
    "Snooze",
    "SubmitOptions",
    "Task",
    "Unavailable",
    "UnknownOutcome",
    "Worker",
    "connect",
    "current",
]
