"""Jobs as classes: what a job does, and how many of its kind run at once, in one place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, overload

from ._call import drive, drive_sync
from ._errors import Invalid
from ._handle import JobHandle, NewJob, read_outcomes, submit
from ._job_registry import app_of, declare
from ._job_submit import RunOptions, new, task_of, task_options
from ._job_task import JobTask
from ._registered import Raised, default_name

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from typing_extensions import Self, Unpack

    from . import sync
    from ._options import Backoff, Length
    from ._tasks import BaseTasks
    from ._transaction import AsyncConnection, SyncConnection

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class RunsAsync(Protocol[R_co]):
    """A job whose `run` is `async def`."""

    def run(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R_co]:
        """Do the work."""
        ...


class RunsSync(Protocol[R_co]):
    """A job whose `run` is a plain `def`."""

    def run(self, *args: Any, **kwargs: Any) -> R_co:
        """Do the work."""
        ...


class Job:
    """A kind of job: a class whose instances are submitted, and whose `run` a worker calls.

    The arguments of the constructor are the payload, by parameter name and as annotated: give ids rather than objects.
    The worker makes the instance again from them. `super().__init__()` need not be called. `run` is `async def` or
    `def`, and may take the context of its attempt: `def run(self, ctx: qo.Context)`.

    >>> import qo
    >>> app = qo.App("memory:")
    >>> class ImportOrders(qo.Job, app=app):
    ...     queue = "imports"
    ...     retries = 4
    ...
    ...     def __init__(self, shop: str) -> None:
    ...         self.shop = shop
    ...
    ...     def run(self) -> str:
    ...         return f"orders of {self.shop}"
    ...
    ...     def get_concurrency_key(self) -> str:
    ...         return f"shop-{self.shop}"
    ...
    ...     def get_concurrency_limit(self) -> int | None:
    ...         return 1  # of each shop at a time
    >>> ImportOrders("north").run_in_worker() is None
    False
    >>> ImportOrders("north").run_in_worker() is None  # the first one waits
    True
    >>> ImportOrders("south").run_in_worker() is None
    False

    Without `app=` a class belongs to the process's default app (`qo.set_default`), whether that is made before or after
    it. The task is named after module and class, or by `name=` beside `app=`. A class without `run` is no task: other
    classes inherit from it.

    | key | limit | how many |
    |---|---|---|
    | `""` | None | any number |
    | `""` | N | N of the class |
    | `"k"` | None | any number |
    | `"k"` | N | N of the class with that key |

    Jobs that wait count as well as those that run. A limit of 0 lets none in.
    """

    queue: ClassVar[str | None] = None
    """The queue. Defaults to `default`."""
    priority: ClassVar[int | None] = None
    """Lower runs first. Defaults to 0."""
    retries: ClassVar[int | None] = None
    """How often a failed job is tried again. Defaults to 2."""
    unique: ClassVar[bool] = False
    """Whether there is at most one job per key, waiting or running; without a key, of the class."""
    schedule: ClassVar[str | None] = None
    """When a job of the class is submitted by itself: a cron expression, as in `0 3 * * *`. A tick that finds the job
    of an earlier one live is skipped. The constructor must do without arguments."""
    timezone: ClassVar[str] = "UTC"
    """The time zone of `schedule`."""
    timeout: ClassVar[Length | None] = None
    """How long an attempt may run. Defaults to any time."""
    backoff: ClassVar[Backoff | Length | None] = None
    """How long to wait between attempts."""
    retry_on: ClassVar[Raised | None] = None
    """The exceptions that are worth another attempt. Defaults to all."""
    fail_on: ClassVar[Raised] = ()
    """The exceptions after which no other attempt is made."""

    # Names that no attribute of a subclass has.
    __qo_app__: ClassVar[BaseTasks | None] = None
    __qo_task__: ClassVar[JobTask | None] = None
    __qo_arguments__: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: Any, **named: Any) -> Self:
            """Remember the arguments of the constructor."""
            if cls.__init__ is object.__init__ and (arguments or named):
                msg = f"{cls.__name__}() takes no arguments"
                raise TypeError(msg)
            self = super().__new__(cls)
            self.__qo_arguments__ = (arguments, named)
            return self

    def __init_subclass__(cls, *, app: BaseTasks | None = None, name: str | None = None, **options: Any) -> None:
        """Declare a class of jobs."""
        super().__init_subclass__(**options)
        if app is not None:
            cls.__qo_app__ = app
        before: JobTask | None
        before, cls.__qo_task__ = cls.__dict__.get("__qo_task__"), None
        if cls.run is Job.run:
            return
        brings_limit = cls.get_concurrency_limit is not Job.get_concurrency_limit
        if cls.unique and brings_limit:
            rule = "a unique job has a limit of 1: leave out get_concurrency_limit"
            raise Invalid.of(f"{cls.__name__}.unique", cls.unique, rule)
        if name is None:
            # `@dataclass(slots=True)` defines the class again, without the name.
            name = default_name(cls) if before is None else before.name
        cls.__qo_task__ = JobTask(name, cls, task_options(cls), before)
        cls.__qo_task__.brings_limit = brings_limit
        declare(cls.__qo_task__, cls.__qo_app__)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work, in a worker. What it returns is the job's result."""
        raise NotImplementedError

    def get_concurrency_key(self) -> str:
        """Return what divides the jobs of the class into groups, each with its own limit. Defaults to `""`: nothing."""
        return ""

    def get_concurrency_limit(self) -> int | None:
        """Return how many jobs with this one's key (without one, of the class) may wait and run. None: any number.

        Each submit brings it, and the newest counts. A limit that an operator, `.qo.toml` or a task sets for the same
        group counts before it.
        """
        return 1 if type(self).unique else None

    @overload
    def run_in_worker(self: RunsAsync[R], **options: Unpack[RunOptions]) -> sync.JobHandle[R] | None: ...
    @overload
    def run_in_worker(self: RunsSync[R], **options: Unpack[RunOptions]) -> sync.JobHandle[R] | None: ...
    def run_in_worker(self, **options: Any) -> Any:
        """Submit the job. Returns None, and submits nothing, if as many as its limit allows wait or run already.

        `concurrency_key` counts instead of `get_concurrency_key()`, `limit` instead of `get_concurrency_limit()`. The
        other options are those of any submit: `queue`, `priority`, `delay`, `run_at`, `on_limit`, … Without a limit of
        its own, a job waits wherever another limit (of an operator, its queue, the cluster) holds it.
        """
        from .sync import JobHandle as Handle  # noqa: PLC0415 -- it imports this module

        _refuse_event_loop(type(self).__name__)
        job = new(self, options)
        return drive_sync(submit(app_of(task_of(self)).namespace, [job], Handle))[0]

    @overload
    async def arun_in_worker(self: RunsAsync[R], **options: Unpack[RunOptions]) -> JobHandle[R] | None: ...
    @overload
    async def arun_in_worker(self: RunsSync[R], **options: Unpack[RunOptions]) -> JobHandle[R] | None: ...
    async def arun_in_worker(self, **options: Any) -> Any:
        """Do what `run_in_worker` does, in an event loop."""
        job = new(self, options)
        return (await drive(submit(app_of(task_of(self)).namespace, [job], JobHandle)))[0]

    @overload
    def new_job(self: RunsAsync[R], **options: Unpack[RunOptions]) -> NewJob[R]: ...
    @overload
    def new_job(self: RunsSync[R], **options: Unpack[RunOptions]) -> NewJob[R]: ...
    def new_job(self, **options: Any) -> Any:
        """Make what `app.submit_many([…])` takes, to submit many jobs in one call."""
        return new(self, options)

    @overload
    def submit_in(
        self: RunsAsync[R], connection: AsyncConnection, /, **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, JobHandle[R] | None]: ...
    @overload
    def submit_in(
        self: RunsSync[R], connection: AsyncConnection, /, **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, JobHandle[R] | None]: ...
    @overload
    def submit_in(
        self: RunsAsync[R], connection: SyncConnection | str, /, **options: Unpack[RunOptions]
    ) -> sync.JobHandle[R] | None: ...
    @overload
    def submit_in(
        self: RunsSync[R], connection: SyncConnection | str, /, **options: Unpack[RunOptions]
    ) -> sync.JobHandle[R] | None: ...
    def submit_in(self, connection: Any, /, **options: Any) -> Any:
        """Do what `run_in_worker` does, in the transaction that is open on a connection to the same PostgreSQL.

        See `Task.submit_in` for which connections there are.
        """
        from ._transaction import is_async, submit_in  # noqa: PLC0415 -- most programs do without it
        from .sync import JobHandle as SyncHandle  # noqa: PLC0415 -- it imports this module

        job, app = new(self, options), app_of(task_of(self))
        delay = None if job.delay_ms is None else job.delay_ms / 1000
        make: Any = JobHandle if is_async(connection) else SyncHandle

        def read(outcomes: list[dict[str, Any]]) -> Any:
            return read_outcomes(app.namespace, outcomes, [job.decode], make)[0]

        return submit_in(connection, app.client, [job.description], [delay], read)


def _refuse_event_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    msg = f"this thread runs an event loop: await {name}(…).arun_in_worker() instead"
    raise RuntimeError(msg)
