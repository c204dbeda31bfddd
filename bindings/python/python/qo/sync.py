"""qo without asyncio: the same names, whose calls wait.

>>> from qo import sync
>>> with sync.connect("memory:") as queue:
...     job = queue.submit("resize", {"file": "cat.png"})
...     job.info().state
'pending'

A call raises RuntimeError in a thread that runs an event loop, which it would stop. Handlers of an app may be `async
def` here, too: the worker runs them on an event loop of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

from ._app import BaseApp, default_app, set_default
from ._call import Sync, drive_sync, refuse_in_loop
from ._client import ClientCalls, new_job
from ._concurrency import ConcurrencyCalls, ManagerCalls
from ._context import Context, current
from ._handle import HandleCalls, KeptJob, NewJob, submit
from ._plain import BaseWorker
from ._settings import read_settings
from ._slot import Slot
from ._task import TaskCalls
from ._tasks import Anything, BaseDeclaring, BaseRouter, BaseScheduling, BaseTasks
from ._workflow import WorkflowCalls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from . import _qo
    from ._options import JobOptions, OnFailure, SubmitOptions
    from ._settings import WorkerOptions, WorkerSettings
    from ._tasks import ScheduleOptions, TaskDeclaration, TaskDefaults
    from ._transaction import SyncConnection

__all__ = [
    "App",
    "Client",
    "Concurrency",
    "ConcurrencyManager",
    "Context",
    "JobHandle",
    "KeptJob",
    "NewJob",
    "SkippingTask",
    "Slot",
    "Task",
    "Tasks",
    "Worker",
    "Workflow",
    "connect",
    "current",
    "get_default",
    "set_default",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="TaskCalls[Any, Any, Any]")


class JobHandle(HandleCalls[R], Sync):
    """A job that was submitted."""

    __slots__ = ()


class Concurrency(ConcurrencyCalls, Sync):
    """Limits, and what holds their slots."""


class ConcurrencyManager(ManagerCalls, Sync):
    """Slots for programs that are not jobs, in five calls. You extend the lease yourself."""


class Workflow(WorkflowCalls[JobHandle[Any]], Sync):
    """Jobs that run strictly one after another, across the fleet. The first submit makes it."""

    def _make(self, *arguments: Any) -> JobHandle[Any]:
        return JobHandle(*arguments)

    def submit(self, task: TaskCalls[P, R, Any], /, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Add a step: a job of a task, with its arguments."""
        step = self._step(task.job(*arguments, **named))
        handle: JobHandle[R] = drive_sync(submit(self._namespace, [step], JobHandle))[0]
        return handle


class Client(ClientCalls[JobHandle[Any], Concurrency], Sync):
    """A namespace, for submitting and looking. Opened by the first call; usable from any thread."""

    def __init__(self, url: str, *, connection: _qo.Connection | None = None) -> None:
        """Make a client. Nothing is opened yet."""
        super().__init__(url, connection=connection)
        self.concurrency = Concurrency(self.namespace)

    def _handle(self, job: str) -> JobHandle[Any]:
        return JobHandle(self.namespace, job)

    @overload
    def submit(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
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
    def submit(
        self,
        task: str,
        data: object = None,
        *,
        concurrency_group: str | None = None,
        concurrency_limit: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> JobHandle[Any]: ...
    def submit(self, task: str, data: object = None, **options: Any) -> Any:
        """Submit a job of a task, by name, with any payload.

        `concurrency_group` and `concurrency_limit` are other names of `group` and `limit`. With `on_limit="skip"` it
        returns None if the group has no room.
        """
        return drive_sync(submit(self.namespace, [new_job(task, data, options)], JobHandle))[0]

    @overload
    def submit_many(  # pyright: ignore[reportOverlappingOverload]
        self, jobs: Iterable[KeptJob[Any]]
    ) -> list[JobHandle[Any]]: ...
    @overload
    def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[JobHandle[Any] | None]: ...
    def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[Any]:
        """Submit many jobs in one call: `submit_many([charge.job(7), mail.job("ann")])`."""
        return drive_sync(submit(self.namespace, list(jobs), JobHandle))

    def workflow(self, name: str, *, on_failure: OnFailure | None = None) -> Workflow:
        """Return a workflow, by name: jobs that run strictly one after another. The first submit makes it."""
        return Workflow(self.namespace, name, on_failure)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def connect(url: str | None = None) -> Client:
    """Connect to a namespace: `file:`, `s3:`, `postgres:` or `memory:`. Without a URL, that of `.qo.toml`."""
    client = Client(read_settings()["store"] if url is None else url)
    drive_sync(client.namespace.look())
    return client


class Task(TaskCalls[P, R, JobHandle[R]], Sync):
    """A function that jobs run. Calling it calls the function itself; `submit` makes a job of the call."""

    _make = JobHandle
    _new = KeptJob

    def job(self, *arguments: P.args, **named: P.kwargs) -> KeptJob[R]:
        """Make a job of a call, to be submitted with others: `app.submit_many([charge.job(7), mail.job("ann")])`."""
        return cast("KeptJob[R]", self._jobs([(arguments, named)])[0])

    def submit(self, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Submit a job that calls the function with these arguments."""
        handle: JobHandle[R] = drive_sync(self._submit(arguments, named, JobHandle))
        return handle

    def submit_in(self, connection: SyncConnection | str, /, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Submit a job in the transaction that is open on a connection to the same PostgreSQL."""
        handle: JobHandle[R] = self._submit_in(connection, arguments, named)
        return handle

    @overload
    def options(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, *, on_limit: Literal["skip"], **options: Unpack[JobOptions]
    ) -> SkippingTask[P, R]: ...
    @overload
    def options(self, **options: Unpack[SubmitOptions]) -> Task[P, R]: ...
    def options(self, **options: Any) -> Any:
        """Return the same task with options for the jobs that are submitted by it: `task.options(key="a").submit(…)`.

        With `on_limit="skip"`, `submit` returns None if the group has no room.
        """
        kind: Any = SkippingTask if options.get("on_limit") == "skip" else Task
        return kind(self._home, self._registered, self._with(options))


class SkippingTask(TaskCalls[P, R, JobHandle[R] | None], Sync):
    """A task whose `submit` returns None if the group has no room: `task.options(on_limit="skip")`."""

    _make = JobHandle

    def submit(self, *arguments: P.args, **named: P.kwargs) -> JobHandle[R] | None:
        """Submit a job that calls the function with these arguments. None if its group has no room."""
        handle: JobHandle[R] | None = drive_sync(self._submit(arguments, named, JobHandle))
        return handle

    def submit_in(
        self, connection: SyncConnection | str, /, *arguments: P.args, **named: P.kwargs
    ) -> JobHandle[R] | None:
        """Submit a job in the transaction that is open on a connection to the same PostgreSQL."""
        handle: JobHandle[R] | None = self._submit_in(connection, arguments, named)
        return handle

    def options(self, **options: Unpack[JobOptions]) -> SkippingTask[P, R]:
        """Return the same task with more options."""
        return SkippingTask(self._home, self._registered, self._with(dict(options)))


class Declaring(BaseDeclaring):
    """`@app.task`, and `@app.task(…)`."""

    @overload
    def __call__(self, function: Callable[Concatenate[Anything, ...], Awaitable[R]], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Anything, ...], R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, name: str | None = None, **options: Unpack[TaskDeclaration]) -> Declaring: ...
    def __call__(self, name: Any = None, **options: Any) -> Any:
        """Declare a task: the function, `async def` or `def`, that runs its jobs. See `qo.App.task`."""
        return self._called(name, options)


class Scheduling(BaseScheduling):
    """`@app.schedule(…)`."""

    @overload
    def __call__(self, task: T, /) -> T: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Anything, ...], Awaitable[R]], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Anything, ...], R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, task: Any, /) -> Any:
        """Give a task a schedule. A function becomes a task first."""
        return self._home.plan(task, self._cron, self._options)


class Declares(BaseTasks):
    """What `App` and `Tasks` share."""

    _task: ClassVar[type[TaskCalls[Any, Any, Any]]] = Task

    @property
    def task(self) -> Declaring:
        """Declare a task: `@app.task`, or `@app.task("resize", max_concurrent=10)`."""
        return Declaring(self)

    def schedule(self, cron: str, **options: Unpack[ScheduleOptions]) -> Scheduling:
        """Run a task by the clock, once across the fleet: `@app.schedule("0 3 * * *", timezone="Europe/Berlin")`."""
        return Scheduling(self, cron, dict(options))


class Tasks(Declares, BaseRouter):
    """Tasks that are declared without an app: `app.include([…])` adds them to one."""

    def __init__(self, **defaults: Unpack[TaskDefaults]) -> None:
        """Make a router. The options are those of every task that has none of its own."""
        super().__init__(defaults)


class App(Declares, BaseApp):
    """A service: where its jobs are, and the functions that run them. See `qo.App`.

    >>> app = App("memory:")
    >>> @app.task
    ... def resize(name: str) -> int: ...
    >>> resize.submit("cat.png").info().state
    'pending'
    """

    _client_class: ClassVar[Any] = Client

    @property
    def client(self) -> Client:
        """A client of its store."""
        client: Client = self._connected()
        return client

    @client.setter
    def client(self, client: Client | None) -> None:
        self._client = client

    def run(
        self,
        *,
        until_signal: bool = True,
        on_stuck: Literal["exit", "tell"] | Callable[[Context], Any] = "exit",
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Run a worker of this app's tasks until SIGTERM or SIGINT, or until `shutdown` is called. See `qo.App.run`."""
        refuse_in_loop()
        asyncio.run(self.run_worker(until_signal=until_signal, on_stuck=on_stuck, **options))

    @overload
    def submit_many(  # pyright: ignore[reportOverlappingOverload]
        self, jobs: Iterable[KeptJob[Any]]
    ) -> list[JobHandle[Any]]: ...
    @overload
    def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[JobHandle[Any] | None]: ...
    def submit_many(self, jobs: Iterable[NewJob[Any]]) -> list[Any]:
        """Submit many jobs in one call: `submit_many([charge.job(7), mail.job("ann")])`."""
        return self.client.submit_many(jobs)

    def workflow(self, name: str, *, on_failure: OnFailure | None = None) -> Workflow:
        """Return a workflow, by name: jobs that run strictly one after another, across the fleet."""
        return self.client.workflow(name, on_failure=on_failure)

    def close(self) -> None:
        """Close the client. Calls on it raise from now on."""
        drive_sync(self._close())

    def __enter__(self) -> Self:
        """Open the app, again if it was closed."""
        self._reopen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def get_default() -> App:
    """Return the process's default app: that of `set_default`, else the only one that there is."""
    app: App = default_app()
    return app


class Worker(BaseWorker):
    """A worker of a client, whose handlers take `(data, ctx)`. See `qo.Worker`."""

    def __init__(
        self, queue: Client, name: str | None = None, shards: object = None, **options: Unpack[WorkerSettings]
    ) -> None:
        """Make a worker. `shards` is accepted and ignored."""
        super().__init__(queue, name, shards, **options)

    def run(
        self, *, until_signal: bool = True, on_stuck: Literal["exit", "tell"] | Callable[[Context], Any] = "exit"
    ) -> None:
        """Work until SIGTERM or SIGINT, or until `shutdown` is called."""
        refuse_in_loop()
        asyncio.run(self._app.run_worker(until_signal=until_signal, on_stuck=on_stuck, **self._options))
