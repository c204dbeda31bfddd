"""A client: submitting jobs, waiting for them, and what operators do."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _qo
from ._call import answer, answer_sync
from ._codec import dumps, read
from ._errors import JobCancelled, JobExpired, JobFailed, from_json
from ._options import SubmitOptions, described, milliseconds
from ._views import ConcurrencyStatus, Explanation, JobInfo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self, Unpack

R = TypeVar("R")


def result_of(detail: dict[str, Any], returns: Any) -> Any:
    """Return the result of a job that has ended, or raise what became of it."""
    job, state = detail["id"], detail["state"]
    if state == "succeeded":
        return read(returns, json.loads(detail["output"] or "null"), path="result")
    if state == "failed":
        errors = [attempt["error"] for attempt in detail["attempts"] if attempt.get("error")]
        error = errors[-1] if errors else "it failed"
        raise JobFailed(f"job {job} failed: {error}", job=job, error=error)
    if state == "expired":
        raise JobExpired(f"job {job} expired before it started", job=job)
    raise JobCancelled(f"job {job} was cancelled", job=job)


class JobHandle(Generic[R]):
    """A job that was submitted."""

    __slots__ = ("_client", "_returns", "id")

    def __init__(self, client: Client, job: str, returns: Any = Any) -> None:
        self._client = client
        self._returns = returns
        self.id = job

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the job has ended and return its result.

        Raises JobFailed, JobCancelled or JobExpired if it has none, TimeoutError if it takes longer than `timeout`
        seconds; the job goes on then.
        """
        waiting = self._client.call("wait", self.id)
        try:
            detail = await asyncio.wait_for(waiting, timeout)
        except asyncio.TimeoutError:
            msg = f"job {self.id} has not ended within {timeout} s"
            raise TimeoutError(msg) from None
        return result_of(detail, self._returns)  # type: ignore[no-any-return]

    def result_sync(self, timeout: float | None = None) -> R:
        """Do what `result` does, without asyncio."""
        detail = self._client.call_sync("wait", self.id, seconds=timeout)
        return result_of(detail, self._returns)  # type: ignore[no-any-return]

    async def info(self) -> JobInfo:
        """Look at the job."""
        return JobInfo.read(await self._client.call("job", self.id))

    async def cancel(self) -> str:
        """Call the job off and return its state: `running` means that it was told to stop."""
        state: str = await self._client.call("cancel", self.id)
        return state

    async def retry(self) -> str:
        """Open the job again and return its state."""
        state: str = await self._client.call("retry", self.id)
        return state

    async def explain(self) -> Explanation:
        """Ask why the job is not running."""
        return Explanation(**await self._client.call("explain", self.id))

    async def logs(self) -> str:
        """Return what its attempts have logged, the oldest first."""
        detail = await self._client.call("job", self.id)
        logs = [await self._client.call("log", attempt["token"]) for attempt in detail["attempts"]]
        return "".join(log for log in logs if log)

    def __repr__(self) -> str:
        return f"<job {self.id}>"


class Concurrency:
    """Limits, and what holds their slots."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def status(self, group: str) -> ConcurrencyStatus:
        """Look at a group."""
        return ConcurrencyStatus.read(await self._client.call("group", group))

    async def set(self, group: str, limit: int) -> None:
        """Set the limit of a group, in the whole fleet. It counts at once."""
        await self._client.call("set_limit", [group, limit])

    async def unset(self, group: str) -> bool:
        """Take back the limit that `set` has set. Returns whether there was one."""
        was_set: bool = await self._client.call("unset_limit", group)
        return was_set

    async def release(self, group: str, slot_id: int) -> None:
        """Take a slot away from its holder, which is told to stop."""
        await self._client.call("release_slot", [group, slot_id])


class Client:
    """A namespace, for submitting and looking. Opened by the first call; usable from any event loop and thread."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = _qo.connect(url)
        self.concurrency = Concurrency(self)
        self._closed = False

    async def call(self, name: str, arguments: object = None) -> Any:
        """Make a call of the store. Not part of the interface."""
        return await answer(self._pending(name, arguments))

    def call_sync(self, name: str, arguments: object = None, *, seconds: float | None = None) -> Any:
        """Make a call of the store. Not part of the interface."""
        return answer_sync(self._pending(name, arguments), seconds)

    def _pending(self, name: str, arguments: object) -> _qo.Pending:
        if self._closed:
            msg = "the client is closed"
            raise RuntimeError(msg)
        return self.connection.call(name, json.dumps(arguments, separators=(",", ":")))

    async def submit(
        self,
        task: str,
        data: object = None,
        *,
        concurrency_group: str | None = None,
        concurrency_limit: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> JobHandle[Any]:
        """Submit a job of a task, by name, with any payload.

        `concurrency_group` and `concurrency_limit` are other names of `group` and `limit`.
        Raises LimitReached if `on_limit="skip"` dropped it.
        """
        if concurrency_group is not None:
            options["group"] = concurrency_group
        if concurrency_limit is not None:
            options["limit"] = concurrency_limit
        job = described(task, dumps(data, path="data"), options)
        handles = await self.submit_described([job], [options])
        handle = handles[0]
        if handle is None:
            raise from_json('{"kind": "limit_reached", "message": "skipped: its group has no room"}')
        return handle

    async def submit_described(
        self,
        jobs: list[dict[str, Any]],
        options: Iterable[SubmitOptions],
        returns: Any = Any,
    ) -> list[JobHandle[Any] | None]:
        """Submit jobs that are described as the store takes them. Not part of the interface."""
        delays = [one.get("delay") for one in options]
        if any(delay is not None for delay in delays):
            now: int = await self.call("now")
            add_delays(jobs, delays, now)
        outcomes = await self.call("submit", jobs)
        return [handle_of(self, outcome, returns) for outcome in outcomes]

    def submit_described_sync(
        self,
        jobs: list[dict[str, Any]],
        options: Iterable[SubmitOptions],
        returns: Any = Any,
    ) -> list[JobHandle[Any] | None]:
        """Do what `submit_described` does, without asyncio."""
        delays = [one.get("delay") for one in options]
        if any(delay is not None for delay in delays):
            add_delays(jobs, delays, self.call_sync("now"))
        outcomes = self.call_sync("submit", jobs)
        return [handle_of(self, outcome, returns) for outcome in outcomes]

    def job(self, job: str) -> JobHandle[Any]:
        """Return the handle of a job, by its id."""
        return JobHandle(self, job)

    async def jobs(self, *, limit: int = 100, **filters: Any) -> list[JobInfo]:
        """Look at jobs, in the order of their submission: `states=["failed"]`, `queue=`, `task=`, `group=`, `key=`."""
        page = await self.call("jobs", [filters, None, limit])
        return [JobInfo.read(job) for job in page["jobs"]]

    async def pause(self, queue: str) -> None:
        """Let nothing start from a queue."""
        await self.call("pause", queue)

    async def resume(self, queue: str) -> None:
        """Let a paused queue go on."""
        await self.call("resume", queue)

    async def close(self) -> None:
        """Close the client. Calls on it raise from now on."""
        if not self._closed:
            pending = self.connection.close()
            self._closed = True
            await answer(pending)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def add_delays(jobs: list[dict[str, Any]], delays: list[Any], now: int) -> None:
    """Turn delays into dates, by the store's time."""
    for job, delay in zip(jobs, delays, strict=True):
        if delay is not None:
            job["run_at"] = now + milliseconds("delay", delay)


def handle_of(client: Client, outcome: dict[str, Any], returns: Any) -> JobHandle[Any] | None:
    """Return the handle of a job that was submitted; None if it was skipped."""
    if "Err" in outcome:
        raise from_json(json.dumps(outcome["Err"]))
    job = outcome["Ok"].get("job")
    return None if job is None else JobHandle(client, job, returns)


async def connect(url: str) -> Client:
    """Connect to a namespace: `file:`, `s3:`, `postgres:` or `memory:`.

    >>> import asyncio
    >>> async def main():
    ...     queue = await connect("memory:")
    ...     job = await queue.submit("resize", {"file": "cat.png"})
    ...     return (await job.info()).state
    >>> asyncio.run(main())
    'pending'
    """
    client = Client(url)
    await client.call("now")
    return client
