"""What can go wrong, and what a handler raises to say what should happen next."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, ClassVar


class QoError(Exception):
    """Any error of qo. Its attributes are data: nothing has to read the message.

    >>> error = Invalid("jobs[3].cost: must be 1 or more", path="jobs[3].cost", rule="must be 1 or more")
    >>> error.path, error.kind
    ('jobs[3].cost', 'invalid')
    """

    kind: ClassVar[str] = "internal"

    def __init__(
        self, message: str, *, path: str | None = None, value: str | None = None, rule: str | None = None
    ) -> None:
        super().__init__(message)
        self.path = path
        """The field that it is about, as in ``jobs[3].key``."""
        self.value = value
        """The value that was refused."""
        self.rule = rule
        """What the value must be."""


class Invalid(QoError, ValueError):
    """A value breaks a rule: the same call never succeeds."""

    kind = "invalid"

    @classmethod
    def of(cls, path: str, value: object, rule: str) -> Invalid:
        """Say which value breaks which rule."""
        shown = repr(value)[:80]
        return cls(f"{path}: {shown}: {rule}", path=path, value=shown, rule=rule)


class NotFound(QoError, LookupError):
    """There is no such job, group, workflow or schedule."""

    kind = "not_found"


class Conflict(QoError):
    """The call does not fit the state that it meets."""

    kind = "conflict"


class LimitReached(QoError):
    """A group has no room, and the job asked to be refused."""

    kind = "limit_reached"


class Fenced(QoError):
    """A newer owner has taken over: this one changes nothing any more."""

    kind = "fenced"


class Unavailable(QoError, ConnectionError):
    """The store cannot be reached. Nothing happened."""

    kind = "unavailable"


class UnknownOutcome(QoError, ConnectionError):
    """The answer was lost: the call may have happened. Making it again with the same ids is safe."""

    kind = "unknown"


class BadData(QoError):
    """What is stored cannot be read."""

    kind = "data"


class Internal(QoError):
    """A mistake in qo."""

    kind = "internal"


KINDS: dict[str, type[QoError]] = {
    error.kind: error
    for error in (
        Invalid,
        NotFound,
        Conflict,
        LimitReached,
        Fenced,
        Unavailable,
        UnknownOutcome,
        BadData,
        Internal,
    )
}


def from_json(text: str) -> QoError:
    """Turn an error of the store into an exception."""
    told: dict[str, Any] = json.loads(text)
    error = KINDS.get(told["kind"], Internal)
    return error(told["message"], path=told.get("path"), value=told.get("value"), rule=told.get("rule"))


class JobEnded(QoError):
    """A job that was waited for has no result."""

    def __init__(self, message: str, *, job: str) -> None:
        super().__init__(message)
        self.job = job


class JobFailed(JobEnded):
    """A job has failed for good. `error` is the last thing that its handler said, with the traceback."""

    def __init__(self, message: str, *, job: str, error: str) -> None:
        super().__init__(message, job=job)
        self.error = error


class JobCancelled(JobEnded):
    """A job was cancelled."""


class JobExpired(JobEnded):
    """A job was not started before its `good_until`."""


def seconds(length: float | timedelta | None) -> float | None:
    """Read a length of time: seconds, or a timedelta."""
    return length.total_seconds() if isinstance(length, timedelta) else length


class Retry(Exception):
    """Raised by a handler: try again, after `delay` instead of the usual backoff."""

    def __init__(self, message: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.delay = seconds(delay)


class Fail(Exception):
    """Raised by a handler: give up, another try would end the same way."""


class Snooze(Exception):
    """Raised by a handler: run again after `delay`; no attempt is used."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay: float = seconds(delay) or 0.0


RetryableError = Retry
PermanentError = Fail
RescheduleError = Snooze
