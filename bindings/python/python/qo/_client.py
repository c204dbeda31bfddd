"""A client: submitting jobs, waiting for them, and what operators do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from ._call import Async, answer, answer_sync, call, drive
from ._codec import dumps
from ._concurrency import Concurrency
from ._errors import Invalid
from ._handle import JobHandle, NewJob, as_it_is, submit
from ._namespace import Namespace
from ._options import described, job_id, moment, one_of, template, unknown
from ._settings import read_settings
from ._slot import Slot
from ._views import (
    GroupInfo,
    JobInfo,
    Page,
    QueueInfo,
    ScheduleInfo,
    WorkerInfo,
    WorkflowInfo,
)
from ._workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from . import _qo
    from . import sync as without_asyncio
    from ._call import Steps
    from ._handle import KeptJob
    from ._options import JobOptions, Length, OnFailure, SubmitOptions
    from ._views import JobState

H = TypeVar("H")
C = TypeVar("C")

_STATES = ("pending", "claimed", "running", "succeeded", "failed", "cancelled", "expired")


class JobFilter(TypedDict, total=False):
    """Which jobs are meant: those that match every part that is given."""

    states: Collection[JobState]
    queue: str
    task: str
    group: str
    key: str
    workflow: str
    submitted_from: datetime
    """Submitted at this date or later."""
    submitted_before: datetime
    """Submitted before this date."""
    id_prefix: str
    """With an id that begins like this."""
    newest_first: bool
    """The newest first. Not for a change of many jobs."""


def _filter(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in JobFilter.__annotations__:
            raise unknown("filter", "part of a filter", name, JobFilter.__annotations__)
        if name == "states":
            states = [value] if isinstance(value, str) else list(value)
            found[name] = [one_of("states", state, _STATES) for state in states]
        elif value is not None:
            found[name] = moment(name, value) if name in ("submitted_from", "submitted_before") else value
    return found


class ClientCalls(Generic[H, C]):
    """What `qo.Client` and `qo.sync.Client` do. `H` is the class of its handles, `C` that of its `concurrency`."""

    concurrency: C
    """Limits, and what holds their slots."""

    def __init__(self, url: str, *, connection: _qo.Connection | None = None) -> None:
        self.namespace = Namespace(url, connection)

    @property
    def url(self) -> str:
        """The URL of the namespace."""
        return self.namespace.url

    @property
    def connection(self) -> _qo.Connection:
        """The extension's connection. Not part of the interface."""
        return self.namespace.connection

    def _handle(self, job: str) -> H:
        raise NotImplementedError

    def job(self, job: str) -> H:
        """Return the handle of a job, by its id. The job is not looked for."""
        return self._handle(job_id("job", job))

    @call
    def jobs(self, *, limit: int = 100, after: Any = None, **filters: Unpack[JobFilter]) -> Steps[Page[JobInfo]]:
        """Look at jobs, in the order of their submission, at most `limit`: `jobs(states=["failed"], task="mail")`.

        `next` of the answer is the `after` of the next page; None if this is the last.
        """
        told = yield self.namespace.ask("jobs", [_filter(filters), after, limit])
        return Page((JobInfo.read(job) for job in told["jobs"]), told["next"])

    @call
    def cancel_jobs(self, **filters: Unpack[JobFilter]) -> Steps[int]:
        """Cancel every job that matches, and return how many were cancelled or told to stop."""
        count: int = yield self.namespace.ask("cancel_matching", _some(filters))
        return count

    @call
    def retry_jobs(self, **filters: Unpack[JobFilter]) -> Steps[int]:
        """Open every job again that matches and ended without success, and return how many there were."""
        count: int = yield self.namespace.ask("retry_matching", _some(filters))
        return count

    @call
    def groups(self, *, limit: int = 100, after: str | None = None) -> Steps[Page[GroupInfo]]:
        """Look at the groups that have jobs or a limit, by name."""
        told = yield self.namespace.ask("groups", [after, limit])
        return Page((GroupInfo.read(group) for group in told["groups"]), told["next"])

    @call
    def queues(self) -> Steps[list[QueueInfo]]:
        """Look at the queues."""
        return [QueueInfo.read(queue) for queue in (yield self.namespace.ask("queues"))]

    @call
    def pause(self, queue: str) -> Steps[None]:
        """Let nothing start from a queue."""
        yield self.namespace.ask("pause", queue)

    @call
    def resume(self, queue: str) -> Steps[None]:
        """Let a paused queue go on."""
        yield self.namespace.ask("resume", queue)

    @call
    def workers(self) -> Steps[list[WorkerInfo]]:
        """Look at the workers that are alive."""
        return [WorkerInfo.read(worker) for worker in (yield self.namespace.ask("workers"))]

    @call
    def workflows(self, *, limit: int = 100, after: str | None = None) -> Steps[Page[WorkflowInfo]]:
        """Look at the workflows, by name."""
        told = yield self.namespace.ask("workflows", [after, limit])
        return Page((WorkflowInfo.read(one) for one in told["workflows"]), told["next"])

    @call
    def schedules(self) -> Steps[list[ScheduleInfo]]:
        """Look at the schedules."""
        return [ScheduleInfo.read(schedule) for schedule in (yield self.namespace.ask("schedules"))]

    @call
    def trigger_schedule(self, schedule: str) -> Steps[H]:
        """Submit a schedule's job now. LimitReached if an earlier one has not ended, unless they may overlap."""
        return self._handle((yield self.namespace.ask("trigger_schedule", schedule)))

    @call
    def enable_schedule(self, schedule: str) -> Steps[None]:
        """Let a schedule fire."""
        yield self.namespace.ask("enable_schedule", schedule)

    @call
    def disable_schedule(self, schedule: str) -> Steps[None]:
        """Stop a schedule from firing, until it is enabled."""
        yield self.namespace.ask("disable_schedule", schedule)

    @call
    def migrate(self) -> Steps[None]:
        """Make the namespace, or raise it to the version of this release: a PostgreSQL schema needs it once."""
        yield from self.namespace.migrate()

    @call
    def close(self) -> Steps[None]:
        """Close the client. Calls on it raise from now on."""
        yield from self.namespace.close()

    def slot(
        self,
        group: str,
        *,
        limit: int | None = None,
        slots: int = 1,
        holder: str | None = None,
        lease: Length = 30.0,
        wait: bool = True,
        timeout: Length | None = None,
    ) -> Slot:
        """Hold slots of a group (`GROUP` or `GROUP/KEY`) for a block: `async with client.slot("deploy", limit=1):`.

        `with` does the same without asyncio. It waits until they are free, at most `timeout`; with `wait=False` it
        raises LimitReached at once. `limit` counts where nothing else sets one. `lease` is how long the slots stay
        taken if the process dies.
        """
        return Slot(
            self.namespace,
            group,
            limit=limit,
            slots=slots,
            holder=holder,
            lease=lease,
            wait=wait,
            timeout=timeout,
        )

    def __repr__(self) -> str:
        return f"<Client of {self.connection!r}>"


def _some(filters: Mapping[str, Any]) -> dict[str, Any]:
    found = _filter(filters)
    if not found:
        raise Invalid.of("filter", {}, "must say which jobs: states, queue, task, group, key or workflow")
    return found


def new_job(task: str, data: object, options: dict[str, Any]) -> NewJob[Any]:
    """Describe a job of a task by name. `concurrency_group` and `concurrency_limit` are other names of two options."""
    for alias, option in (("concurrency_group", "group"), ("concurrency_limit", "limit")):
        given = options.pop(alias, None)
        if given is not None:
            if options.get(option, given) != given:
                raise Invalid.of(alias, given, f"is another name of {option}, which is {options[option]!r}")
            options[option] = given
    delay = template(task, options).get("delay")
    return NewJob(described(task, dumps(data, path="data"), options), delay, as_it_is)


class Client(ClientCalls[JobHandle[Any], Concurrency], Async):
    """A namespace, for submitting and looking. Opened by the first call; usable from any event loop and thread.

    `qo.sync.Client` is the same without asyncio.
    """

    def __init__(self, url: str, *, connection: _qo.Connection | None = None) -> None:
        super().__init__(url, connection=connection)
        self.concurrency = Concurrency(self.namespace)

    def _handle(self, job: str) -> JobHandle[Any]:
        return JobHandle(self.namespace, job)

    @property
    def sync(self) -> without_asyncio.Client:
        """The same namespace, for code without asyncio."""
        from .sync import Client as SyncClient  # noqa: PLC0415 -- it imports this module

        return SyncClient(self.url, connection=self.connection)

    async def call(self, name: str, arguments: object = None) -> Any:
        """Make a call of the store. Not part of the interface."""
        return await answer(*self.namespace.ask(name, arguments))

    def call_sync(self, name: str, arguments: object = None, *, seconds: float | None = None) -> Any:
        """Make a call of the store. Not part of the interface."""
        return answer_sync(*self.namespace.ask(name, arguments, seconds))

    @overload
    async def submit(  # type: ignore[overload-overlap]
        self,
        task: str,
        data: object = None,
        *,
        on_limit: Literal["skip"],
        concurrency_group: str | None = None,
        concurrency_limit: int | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[Any] | None: ...
    @overload
    async def submit(
        self,
        task: str,
        data: object = None,
        *,
        concurrency_group: str | None = None,
        concurrency_limit: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> JobHandle[Any]: ...
    async def submit(self, task: str, data: object = None, **options: Any) -> Any:
        """Submit a job of a task, by name, with any payload.

        `concurrency_group` and `concurrency_limit` are other names of `group` and `limit`. With `on_limit="skip"` it
        returns None if the group has no room.
        """
        return (await drive(submit(self.namespace, [new_job(task, data, options)], JobHandle)))[0]

    @overload
    async def submit_many(self, jobs: Iterable[KeptJob[Any]]) -> list[JobHandle[Any]]: ...
    @overload
    async def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[JobHandle[Any] | None]: ...
    async def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[Any]:
        """Submit many jobs in one call: `submit_many([charge.job(7), mail.job("ann")])`.

        None stands for one that was skipped. An error of one job is raised when all have been tried; `outcomes` of the
        exception says what became of each.
        """
        return await drive(submit(self.namespace, list(jobs), JobHandle))

    def workflow(self, name: str, *, on_failure: OnFailure | None = None) -> Workflow:
        """Return a workflow, by name: jobs that run strictly one after another. The first submit makes it."""
        return Workflow(self.namespace, name, on_failure)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def connect(url: str | None = None) -> Client:
    """Connect to a namespace: `file:`, `s3:`, `postgres:` or `memory:`. Without a URL, that of `.qo.toml`.

    >>> import asyncio
    >>> async def main():
    ...     queue = await connect("memory:")
    ...     job = await queue.submit("resize", {"file": "cat.png"})
    ...     return (await job.info()).state
    >>> asyncio.run(main())
    'pending'
    """
    client = Client(read_settings()["store"] if url is None else url)
    await client.call("now")
    return client
