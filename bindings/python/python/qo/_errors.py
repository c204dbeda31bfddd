"""What can go wrong, and what a handler raises to say what should happen next."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, ClassVar

_SHOWN = 80
"""How many characters of a value a message shows."""
_LONGEST_SECONDS = 10**12
"""The longest time, in seconds: the store counts milliseconds in 64 bits."""


class QoError(Exception):
    """Any error of qo. Its attributes are data: nothing has to read the message.

    >>> error = Invalid("jobs[3].cost: must be 1 or more", path="jobs[3].cost", rule="must be 1 or more")
    >>> error.path, error.kind
    ('jobs[3].cost', 'invalid')
    """

    kind: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        value: str | None = None,
        rule: str | None = None,
        cause: str | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        """The field that it is about, as in ``jobs[3].key``."""
        self.value = value
        """The value that was refused, as text."""
        self.rule = rule
        """What the value must be."""
        self.cause = cause
        """A cause that programs act upon, such as ``no_namespace``."""
        self.outcomes: list[Any] | None = None
        """Of `submit_many`: what became of each job. A handle, None for a skipped job, or the error."""

    def as_json(self) -> str:
        """Return it as the store would tell it."""
        parts = {"path": self.path, "value": self.value, "rule": self.rule, "cause": self.cause}
        told = {name: part for name, part in parts.items() if part is not None}
        return json.dumps({"kind": self.kind, "message": str(self), **told})


class Invalid(QoError, ValueError):
    """A value breaks a rule: the same call never succeeds."""

    kind = "invalid"

    @classmethod
    def of(cls, path: str, value: object, rule: str) -> Invalid:
        """Say which value breaks which rule.

        >>> print(Invalid.of("cost", 0, "must be 1 or more"))
        cost: 0: must be 1 or more
        """
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        return cls(f"{path}: {shown}: {rule}", path=path, value=shown, rule=rule)


class UnknownOption(Invalid, TypeError):
    """There is no option of this name."""


class NotFound(QoError, LookupError):
    """There is no such job, group, workflow or schedule."""

    kind = "not_found"


class Conflict(QoError):
    """The call contradicts what is stored."""

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


_KINDS: dict[str, type[QoError]] = {
    error.kind: error
    for error in (Invalid, NotFound, Conflict, LimitReached, Fenced, Unavailable, UnknownOutcome, BadData, Internal)
}


def from_told(told: dict[str, Any]) -> QoError:
    """Turn an error of the store into an exception."""
    error = _KINDS.get(told["kind"], Internal)
    return error(
        told["message"],
        path=told.get("path"),
        value=told.get("value"),
        rule=told.get("rule"),
        cause=told.get("cause"),
    )


def from_json(text: str) -> QoError:
    """Turn an error of the store, as JSON, into an exception."""
    return from_told(json.loads(text))


def of_only_job(error: QoError) -> QoError:
    """Leave the index out of an error about the only job of a call."""
    index = "jobs[0]."
    if error.path is not None and error.path.startswith(index):
        error.path = error.path[len(index) :]
        error.args = (str(error).replace(index, "", 1), *error.args[1:])
    return error


class JobEnded(QoError):
    """A job that was waited for has no result."""

    def __init__(self, message: str = "", *, job: str = "") -> None:
        super().__init__(message)
        self.job = job
        """The job's id."""


class JobFailed(JobEnded):
    """A job has failed for good."""

    def __init__(self, message: str = "", *, job: str = "", error: str = "", traceback: str | None = None) -> None:
        super().__init__(message, job=job)
        self.error = error
        """What its last attempt said, as in ``ValueError: no such user``."""
        self.traceback = traceback
        """The traceback of its last attempt, as text; None if there is none."""


class JobCancelled(JobEnded):
    """A job was cancelled."""


class JobExpired(JobEnded):
    """A job was not started before its `good_until`."""


class RemoteTraceback(Exception):
    """The traceback of a job that failed in another process. It is the cause of a JobFailed."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}\n"""'


def seconds(path: str, length: object) -> float:
    """Read a length of time: seconds, or a timedelta."""
    value = length.total_seconds() if isinstance(length, timedelta) else length
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise Invalid.of(path, length, "must be seconds, or a timedelta, and not negative")
    if value > _LONGEST_SECONDS:
        raise Invalid.of(path, length, f"must be at most {_LONGEST_SECONDS} seconds; leave it out for any time")
    return value


class Retry(Exception):
    """Raised by a handler: try again, after `delay` instead of the usual backoff.

    >>> Retry("the server is busy", delay=30).delay
    30
    """

    def __init__(self, message: object = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.delay = None if delay is None else seconds("delay", delay)


class Fail(Exception):
    """Raised by a handler: give up, another try would end the same way."""


class Snooze(Exception):
    """Raised by a handler: run again after `delay`; no attempt is used."""

    def __init__(self, delay: float | timedelta = 0.0) -> None:
        super().__init__(delay)
        self.delay = seconds("delay", delay)

    def __str__(self) -> str:
        return f"snoozed for {self.delay} s"


RetryableError = Retry
PermanentError = Fail
RescheduleError = Snooze
