"""Tasks: functions whose calls can be submitted as jobs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, ParamSpec, TypeVar, cast, overload

from ._call import Async, call, drive, drive_sync
from ._errors import Invalid
from ._handle import JobHandle, KeptJob, NewJob, read_outcomes, submit
from ._options import new_ids, template
from ._registered import Named, Plain, Registered, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from typing_extensions import Unpack

    from . import sync
    from ._call import Steps
    from ._client import Client
    from ._namespace import Namespace
    from ._options import JobOptions, SubmitOptions
    from ._tasks import BaseTasks
    from ._transaction import AsyncConnection, SyncConnection

__all__ = ["Named", "Plain", "Registered", "SkippingTask", "Task", "TaskCalls", "TaskOptions"]

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H")


class TaskCalls(Generic[P, R, H]):
    """What the tasks of `qo` and `qo.sync` do. `H` is what a submit returns."""

    _make: ClassVar[Callable[..., Any]]
    """Makes the handle of a job."""
    _new: ClassVar[type[NewJob[Any]]] = NewJob

    def __init__(self, home: BaseTasks, registered: Named, options: Mapping[str, Any] | None = None) -> None:
        # First, because it copies attributes of the function.
        functools.update_wrapper(self, registered.function)
        self._home = home
        self._registered = registered
        self._options: dict[str, Any] = dict(options or {})
        self._template: dict[str, Any] | None = None
        self._delay_ms: int | None = None
        self.name = registered.name

    @property
    def registered(self) -> Named:
        """How it is declared. Not part of the interface."""
        return self._registered

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function, here and now."""
        return self._registered.function(*arguments, **named)

    def _with(self, options: dict[str, Any]) -> dict[str, Any]:
        # A mistake is raised here, not by the submit.
        template(self.name, options)
        return {**self._options, **options}

    def job(self, *arguments: P.args, **named: P.kwargs) -> NewJob[R]:
        """Make a job of a call, to be submitted with others: `app.submit_many([charge.job(7), mail.job("ann")])`."""
        return self._jobs([(arguments, named)])[0]

    def _jobs(self, calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[NewJob[R]]:
        registered, shared = self._registered, self._template
        if shared is None:
            # The group goes along: no worker may have registered the task yet.
            usual = {"group": registered.options.group, **registered.options.submit}
            shared = template(self.name, {**usual, **self._options})
            self._delay_ms = shared.pop("delay", None)
            self._template = shared
        delay, decode = self._delay_ms, registered.result
        if "id" in shared and len(calls) > 1:
            raise Invalid.of("id", shared["id"], "is for one job")
        ids = [shared["id"]] * len(calls) if "id" in shared else new_ids(len(calls))
        new = self._new
        return [
            new({**shared, "id": job, "payload": registered.payload(*one)}, delay, decode)
            for job, one in zip(ids, calls, strict=True)
        ]

    @property
    def namespace(self) -> Namespace:
        """Where its jobs are. Not part of the interface."""
        return self._home.app.namespace

    # The name by which other modules know it.
    _namespace = namespace

    def _submit(self, arguments: tuple[Any, ...], named: dict[str, Any], make: Callable[..., Any]) -> Steps[Any]:
        jobs = self._jobs([(arguments, named)])
        return (yield from submit(self.namespace, jobs, make))[0]

    def _submit_many(self, calls: Iterable[Any], make: Callable[..., Any]) -> Steps[list[Any]]:
        given = list(calls)
        fresh = iter(self._jobs([_arguments(index, one) for index, one in enumerate(given) if not _is_new(one)]))
        jobs = [one if _is_new(one) else next(fresh) for one in given]
        return (yield from submit(self.namespace, jobs, make))

    @call
    def submit_many(self, calls: Iterable[Mapping[str, Any] | tuple[Any, ...] | NewJob[R]]) -> Steps[list[H]]:
        """Submit many jobs in one call.

        Each is an object with the arguments by name, a tuple of arguments, or `task.job(…)`, which type checkers check.
        An error of one job is raised when all have been tried; `outcomes` of the exception says what became of each.
        """
        return (yield from self._submit_many(calls, type(self)._make))

    def _submit_in(self, connection: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        from ._transaction import is_async, submit_in  # noqa: PLC0415 -- most programs do without it

        job = self._jobs([(arguments, named)])[0]
        make, namespace = (JobHandle if is_async(connection) else _sync_handle()), self.namespace

        def read(outcomes: list[dict[str, Any]]) -> Any:
            return read_outcomes(namespace, outcomes, [job.decode], make)[0]

        delay = None if job.delay_ms is None else job.delay_ms / 1000
        client: Client = self._home.app.client
        return submit_in(connection, client, [job.description], [delay], read)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


def _is_new(one: object) -> bool:
    return isinstance(one, NewJob)


def _arguments(index: int, one: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(one, tuple):
        return one, {}  # pyright: ignore[reportUnknownVariableType]
    try:
        return (), {**one}
    except TypeError:
        rule = "must be arguments by name, {…}, a tuple of arguments, or task.job(…)"
        raise Invalid.of(f"calls[{index}]", one, rule) from None


class Task(TaskCalls[P, R, JobHandle[R]], Async):
    """A function that jobs run. Calling it calls the function itself; `submit` makes a job of the call.

    >>> import asyncio, qo
    >>> app = qo.App("memory:")
    >>> @app.task("greet")
    ... def greet(name: str, times: int = 1) -> str:
    ...     return f"Hello {name}! " * times
    >>> greet("Ann")
    'Hello Ann! '
    >>> async def main():
    ...     job = await greet.options(key="ann", priority=-1).submit("Ann", times=2)
    ...     return (await job.info()).payload
    >>> asyncio.run(main())
    {'name': 'Ann', 'times': 2}
    >>> greet.submit_sync("Ann", times="twice")
    Traceback (most recent call last):
    qo.Invalid: greet(times): 'twice': must be int
    """

    _make = JobHandle
    _new = KeptJob

    def job(self, *arguments: P.args, **named: P.kwargs) -> KeptJob[R]:
        """Make a job of a call, to be submitted with others: `app.submit_many([charge.job(7), mail.job("ann")])`."""
        return cast("KeptJob[R]", self._jobs([(arguments, named)])[0])

    async def submit(self, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Submit a job that calls the function with these arguments.

        TypeError if they do not fit the function, Invalid if one cannot be sent or does not fit its annotation,
        LimitReached if the group has no room and the job has the option `on_limit="reject"`.
        """
        handle: JobHandle[R] = await drive(self._submit(arguments, named, JobHandle))
        return handle

    def submit_sync(self, *arguments: P.args, **named: P.kwargs) -> sync.JobHandle[R]:
        """Do what `submit` does, without asyncio."""
        handle: sync.JobHandle[R] = drive_sync(self._submit(arguments, named, _sync_handle()))
        return handle

    def submit_many_sync(
        self, calls: Iterable[Mapping[str, Any] | tuple[Any, ...] | NewJob[R]]
    ) -> list[sync.JobHandle[R]]:
        """Do what `submit_many` does, without asyncio."""
        return drive_sync(self._submit_many(calls, _sync_handle()))

    @overload
    def submit_in(
        self, connection: AsyncConnection, /, *arguments: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, JobHandle[R]]: ...
    @overload
    def submit_in(
        self, connection: SyncConnection | str, /, *arguments: P.args, **named: P.kwargs
    ) -> sync.JobHandle[R]: ...
    def submit_in(self, connection: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
        """Submit a job in the transaction that is open on a connection to the same PostgreSQL.

        The connection is one of psycopg 3, SQLAlchemy, asyncpg or Django (or its alias there). With an async one, await
        the answer. The job is there when the transaction commits, and never was if it does not.
        """
        return self._submit_in(connection, arguments, named)

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


class SkippingTask(TaskCalls[P, R, JobHandle[R] | None], Async):
    """A task whose `submit` returns None if the group has no room: `task.options(on_limit="skip")`.

    >>> import qo
    >>> app = qo.App("memory:")
    >>> @app.task("report")
    ... def report() -> None: ...
    >>> only = report.options(limit=1, on_limit="skip")
    >>> only.submit_sync() is None, only.submit_sync() is None
    (False, True)
    """

    _make = JobHandle

    async def submit(self, *arguments: P.args, **named: P.kwargs) -> JobHandle[R] | None:
        """Submit a job that calls the function with these arguments. None if its group has no room."""
        handle: JobHandle[R] | None = await drive(self._submit(arguments, named, JobHandle))
        return handle

    def submit_sync(self, *arguments: P.args, **named: P.kwargs) -> sync.JobHandle[R] | None:
        """Do what `submit` does, without asyncio."""
        handle: sync.JobHandle[R] | None = drive_sync(self._submit(arguments, named, _sync_handle()))
        return handle

    @overload
    def submit_in(
        self, connection: AsyncConnection, /, *arguments: P.args, **named: P.kwargs
    ) -> Coroutine[Any, Any, JobHandle[R] | None]: ...
    @overload
    def submit_in(
        self, connection: SyncConnection | str, /, *arguments: P.args, **named: P.kwargs
    ) -> sync.JobHandle[R] | None: ...
    def submit_in(self, connection: Any, /, *arguments: P.args, **named: P.kwargs) -> Any:
        """Submit a job in the transaction that is open on a connection, as `Task.submit_in` does."""
        return self._submit_in(connection, arguments, named)

    def options(self, **options: Unpack[JobOptions]) -> SkippingTask[P, R]:
        """Return the same task with more options."""
        return SkippingTask(self._home, self._registered, self._with(dict(options)))


def _sync_handle() -> Any:
    from .sync import JobHandle as Handle  # noqa: PLC0415 -- it imports this module

    return Handle
