"""A job that was submitted: its result, and what can be done with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._call import Async, call
from ._errors import JobCancelled, JobExpired, JobFailed, QoError, RemoteTraceback, from_told, of_only_job
from ._explanation import Explanation
from ._options import milliseconds
from ._views import JobInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from . import sync
    from ._call import Steps
    from ._namespace import Namespace
    from ._options import Length
    from ._views import JobState, Progress

R = TypeVar("R")

_TRACEBACK = "\n\nTraceback (most recent call last):\n"


def as_it_is(value: Any) -> Any:
    """Leave a result as JSON has it."""
    return value


def result_of(detail: dict[str, Any], decode: Callable[[Any], R]) -> R:
    """Return the result of a job that has ended, or raise what became of it."""
    job, state = detail["id"], detail["state"]
    if state == "succeeded":
        return decode(json.loads(detail["output"] or "null"))
    if state == "failed":
        errors = [attempt["error"] for attempt in detail["attempts"] if attempt.get("error")]
        error, mark, traceback = (errors[-1] if errors else "it failed").partition(_TRACEBACK)
        shown = f"{mark.lstrip()}{traceback}" or None
        failed = JobFailed(f"job {job} ({detail['task']}) failed: {error}", job=job, error=error, traceback=shown)
        raise failed from (None if shown is None else RemoteTraceback(shown))
    if state == "expired":
        raise JobExpired(f"job {job} ({detail['task']}) expired before it started", job=job)
    raise JobCancelled(f"job {job} ({detail['task']}) was cancelled", job=job)


class HandleCalls(Generic[R]):
    """What `qo.JobHandle` and `qo.sync.JobHandle` do."""

    __slots__ = ("_decode", "_namespace", "id")

    def __init__(self, namespace: Namespace, job: str, decode: Callable[[Any], R] = as_it_is) -> None:
        self._namespace = namespace
        self._decode = decode
        self.id = job
        """The job's id."""

    @call
    def result(self, timeout: Length | None = None) -> Steps[R]:
        """Wait until the job has ended and return what its handler returned, by its return annotation.

        Raises JobFailed, JobCancelled or JobExpired if there is no result, TimeoutError if the job takes longer than
        `timeout` seconds; the job goes on then.
        """
        seconds = None if timeout is None else milliseconds("timeout", timeout) / 1000
        try:
            detail = yield self._namespace.ask("wait", self.id, seconds)
        except TimeoutError:
            raise TimeoutError(f"job {self.id} has not ended within {seconds} s") from None
        return result_of(detail, self._decode)

    @call
    def info(self) -> Steps[JobInfo]:
        """Look at the job: its state, options and attempts."""
        return JobInfo.read((yield self._namespace.ask("job", self.id)))

    @call
    def progress(self) -> Steps[Progress | None]:
        """Look how far the job is; None if it does not run, or has not said."""
        return JobInfo.read((yield self._namespace.ask("job", self.id))).progress

    @call
    def cancel(self) -> Steps[JobState]:
        """Call the job off and return its state: `running` means that it was told to stop."""
        state: JobState = yield self._namespace.ask("cancel", self.id)
        return state

    @call
    def retry(self) -> Steps[JobState]:
        """Open the job again if it failed, expired or was cancelled, and return its state."""
        state: JobState = yield self._namespace.ask("retry", self.id)
        return state

    @call
    def explain(self) -> Steps[Explanation]:
        """Ask why the job is not running. `print` shows it in words."""
        return Explanation.read((yield self._namespace.ask("explain", self.id)))

    @call
    def logs(self) -> Steps[str]:
        """Return what its attempts have logged, the oldest first, the one that runs included."""
        detail = yield self._namespace.ask("job", self.id)
        tokens = [attempt["token"] for attempt in detail["attempts"]]
        if detail["running"] is not None:
            tokens.append(detail["running"]["token"])
        logs: list[str] = []
        for token in tokens:
            log = yield self._namespace.ask("log", token)
            logs.append(log or "")
        return "".join(logs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HandleCalls) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id}>"


class JobHandle(HandleCalls[R], Async):
    """A job that was submitted. `qo.sync.JobHandle` is the same without asyncio.

    >>> import asyncio, qo
    >>> app = qo.App("memory:")
    >>> @app.task("add")
    ... async def add(a: int, b: int) -> int:
    ...     return a + b
    >>> async def main():
    ...     job = await add.submit(1, b=2)
    ...     print((await job.explain()).reasons[0])
    ...     worker = asyncio.create_task(app.run(until_signal=False))
    ...     print(await job.result(timeout=30), (await job.info()).state)
    ...     app.shutdown()
    ...     await worker
    >>> asyncio.run(main())
    No live worker has task add and serves queue default.
    3 succeeded
    """

    __slots__ = ()

    @property
    def sync(self) -> sync.JobHandle[R]:
        """The same job, for code without asyncio."""
        from .sync import JobHandle as Handle  # noqa: PLC0415 -- it imports this module

        return Handle(self._namespace, self.id, self._decode)


class NewJob(Generic[R]):
    """A job that is not submitted yet: `task.job(…)`, for `submit_many`. It may be skipped, by its `on_limit`."""

    __slots__ = ("decode", "delay_ms", "description")

    def __init__(self, description: dict[str, Any], delay_ms: int | None, decode: Callable[[Any], R]) -> None:
        self.description = description
        """As the store takes it, without its delay."""
        self.delay_ms = delay_ms
        self.decode = decode

    @property
    def id(self) -> str:
        """The id that it will have."""
        job: str = self.description["id"]
        return job

    def __repr__(self) -> str:
        return f"<new job {self.id} of {self.description['task']}>"


class KeptJob(NewJob[R]):
    """A job that is not submitted yet, and is not skipped: it is accepted, or the submit raises."""

    __slots__ = ()


def submit(namespace: Namespace, jobs: list[NewJob[Any]], make: Callable[..., Any]) -> Steps[list[Any]]:
    """Submit jobs, and return a handle for each, made by `make`; None for one that was skipped."""
    described = [job.description for job in jobs]
    if any(job.delay_ms is not None for job in jobs):
        now: int = yield namespace.ask("now")
        described = [_dated(job, now) for job in jobs]
    try:
        outcomes = yield namespace.ask("submit", described)
    except QoError as error:
        if len(jobs) == 1:
            of_only_job(error)
        raise
    return read_outcomes(namespace, outcomes, [job.decode for job in jobs], make)


def _dated(job: NewJob[Any], now: int) -> dict[str, Any]:
    if job.delay_ms is None:
        return job.description
    return {**job.description, "run_at": now + job.delay_ms}


def read_outcomes(
    namespace: Namespace,
    outcomes: list[dict[str, Any]],
    decoding: list[Callable[[Any], Any]],
    make: Callable[..., Any],
) -> list[Any]:
    """Return a handle for each job that was submitted; None for one that was skipped. Raises the first error."""
    found: list[Any] = []
    first: Exception | None = None
    for outcome, decode in zip(outcomes, decoding, strict=True):
        if "Ok" in outcome:
            job = outcome["Ok"].get("job")
            found.append(None if job is None else make(namespace, job, decode))
            continue
        error = from_told(outcome["Err"])
        found.append(error if len(outcomes) > 1 else of_only_job(error))
        if first is None:
            first = error
            error.outcomes = found
    if first is not None:
        raise first
    return found
