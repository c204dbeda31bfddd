"""What a handler knows of its attempt."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import TYPE_CHECKING, cast

from ._codec import unicode
from ._errors import Invalid

if TYPE_CHECKING:
    from . import _qo


class Context:
    """An attempt, as its handler sees it."""

    __slots__ = ("_native",)

    def __init__(self, native: _qo.Context) -> None:
        self._native = native

    @property
    def job(self) -> str:
        """The job's id."""
        return self._native.job

    @property
    def task(self) -> str:
        """The task's name."""
        return self._native.task

    @property
    def queue(self) -> str:
        """The queue."""
        return self._native.queue

    @property
    def group(self) -> str:
        """The group."""
        return self._native.group

    @property
    def key(self) -> str | None:
        """The key, if it has one."""
        return self._native.key

    @property
    def traceparent(self) -> str | None:
        """The trace that the job belongs to, if it was submitted with one: the same in every try."""
        return self._native.traceparent

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._native.attempt

    @property
    def max_attempts(self) -> int:
        """The try after which the job fails for good."""
        return self._native.max_attempts

    @property
    def fence_token(self) -> int:
        """Grows with every claim of the job: send it along, so that a place can refuse writes with an older one."""
        return self._native.fence_token

    @property
    def lease_until(self) -> datetime:
        """The end of the lease. The worker renews it; the handler does nothing for it."""
        return datetime.fromtimestamp(self._native.lease_until_ms() / 1000, tz=timezone.utc)

    async def extend_lease(self, secs: float = 0) -> datetime:  # noqa: ARG002
        """Return the end of the lease. The worker renews it by itself, so `secs` changes nothing."""
        return self.lease_until

    @property
    def cancelled(self) -> bool:
        """Whether the handler must stop. A plain `def` looks at it now and then."""
        return self._native.cancel_reason() is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why the handler must stop; None if it need not."""
        return self._native.cancel_reason()

    def raise_if_cancelled(self) -> None:
        """Raise asyncio.CancelledError if the handler must stop."""
        reason = self._native.cancel_reason()
        if reason is not None:
            raise asyncio.CancelledError(reason)

    def progress(self, fraction: float, note: str = "") -> None:
        """Report how far it is, from 0 to 1, and what it does. The newest report is passed on once a second."""
        given = cast("object", fraction)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= 1:
            raise Invalid.of("fraction", given, "must be a number from 0 to 1")
        self._native.progress(float(given), unicode(str(note)))

    def log(self, text: str) -> None:
        """Write a line to the attempt's log, which `JobHandle.logs` and `qo jobs logs` show."""
        self._native.log(unicode(text if text.endswith("\n") else f"{text}\n"))

    def __repr__(self) -> str:
        return f"<Context of attempt {self.attempt} of job {self.job}>"


CURRENT: ContextVar[Context] = ContextVar("qo.current")


def current() -> Context:
    """Return the context of the job that runs here, however deep in its calls. LookupError outside of a job.

    >>> import qo
    >>> def save(rows: list[int]) -> None:
    ...     qo.current().progress(0.5, f"{len(rows)} rows")
    >>> save([])
    Traceback (most recent call last):
    LookupError: no job runs here: qo.current() is for the functions that a handler calls
    """
    context = CURRENT.get(None)
    if context is None:
        raise LookupError("no job runs here: qo.current() is for the functions that a handler calls")
    return context
