"""Where tasks are declared: an app, or a router that an app includes."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypedDict, TypeVar, final, overload

from . import _schedule
from ._errors import Invalid
from ._options import Backoff, Length, template, unknown
from ._options import name as checked_name
from ._registered import Named, Raised, Registered, TaskOptions, default_name
from ._task import Task, TaskCalls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from typing_extensions import Unpack

    from ._app import BaseApp
    from ._context import Context
    from ._schedule import Missed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="TaskCalls[Any, Any, Any]")


class TaskDefaults(TypedDict, total=False):
    """Options of tasks that several of them share."""

    queue: str | None
    """The queue of its jobs. Defaults to `default`."""
    priority: int | None
    """Lower runs first. Defaults to 0."""
    timeout: Length | None
    """How long one try may take. Defaults to any time."""
    max_attempts: int | None
    """After how many tries a job fails for good. Defaults to 3."""
    backoff: Backoff | Length | None
    """How long to wait between tries. Defaults to 1 s, twice as long each time, at most 60 s."""
    retry_on: Raised | None
    """The exceptions that are worth another try. Defaults to all."""
    fail_on: Raised
    """The exceptions after which no other try is made."""
    group: str | None
    """The group whose slots its jobs take. Defaults to the task's name."""


class TaskDeclaration(TaskDefaults, total=False):
    """Every option of a task."""

    max_concurrent: int | None
    """How many slots its group has: how many of its jobs run at once, in the whole fleet."""
    max_concurrent_per_key: int | None
    """How many slots each key of its group has."""


class ScheduleOptions(TypedDict, total=False):
    """Every option of a schedule but its cron expression."""

    name: str | None
    """Defaults to the name of the task."""
    timezone: str
    """As in `Europe/Berlin`. Defaults to `UTC`."""
    arguments: Mapping[str, Any]
    """The arguments of the task, by name."""
    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: Length | None
    missed: Missed
    """What becomes of ticks that passed while no worker ran: the `latest` runs, `all` run, or `skip` them."""
    overlap: bool
    """Whether a tick runs while the job of an earlier one is live. Defaults to False."""


@final
class Anything:
    """Stands for any value: a parameter that takes it has no annotation, or Any."""


class BaseTasks:
    """What an app and a router share: tasks and schedules."""

    _task: ClassVar[type[TaskCalls[Any, Any, Any]]] = Task

    def __init__(self, defaults: Mapping[str, Any] | None = None) -> None:
        self.tasks: dict[str, Registered] = {}
        """The tasks that are declared here, by name."""
        self.schedules: dict[str, dict[str, Any]] = {}
        """The schedules that are declared here, by name, as the store takes them."""
        self._defaults: dict[str, Any] = dict(defaults or {})
        for option in self._defaults:
            if option not in TaskDefaults.__annotations__:
                raise unknown("options", "option that tasks share", option, TaskDefaults.__annotations__)
        task_options({**self._defaults})

    @property
    def app(self) -> BaseApp:
        """The app that the tasks belong to. Not part of the interface."""
        raise NotImplementedError

    def add(self, registered: Registered) -> None:
        """Add a handler. Two of one name are refused. Not part of the interface."""
        before = self.tasks.get(registered.name)
        if before is not None and before is not registered and not _is_cell_again(before, registered):
            rule = f"is declared twice: as {_place(before)} and as {_place(registered)}"
            raise Invalid.of("task", registered.name, rule)
        self.tasks[registered.name] = registered

    def declare(self, function: Callable[..., Any], name: str | None, options: dict[str, Any]) -> Any:
        """Make a function a task. Not part of the interface."""
        if _is_task(function):
            raise Invalid.of("task", function, "is a task already")
        name = default_name(function) if name is None else checked_name("task", name)
        registered = Named(name, function, task_options({**self._defaults, **options}), _names_around(function))
        self.add(registered)
        return self._task(self, registered)

    def plan(self, task: Any, cron: str, options: dict[str, Any]) -> Any:
        """Give a task, or a function that becomes one, a schedule. Not part of the interface."""
        if not _is_task(task):
            task = self.declare(task, None, {})
        name = checked_name("schedule", options.get("name") or task.name)
        if name in self.schedules and not _is_interactive():
            raise Invalid.of("schedule", name, "is declared twice: give one of them a name")
        self.schedules[name] = _schedule.described(task.registered, cron, options)
        return task


def _is_task(value: object) -> bool:
    return isinstance(value, TaskCalls)


def task_options(given: dict[str, Any]) -> TaskOptions:
    """Read the options of a task."""
    for option in given:
        if option not in TaskDeclaration.__annotations__:
            raise unknown("options", "option of a task", option, TaskDeclaration.__annotations__)
    submit = {name: given.pop(name, None) for name in ("queue", "priority", "max_attempts")}
    template("any", submit)
    found: Any = {name: value for name, value in submit.items() if value is not None}
    return TaskOptions(**given, submit=found)


def _place(registered: Registered) -> str:
    function = registered.function
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"


def _is_interactive() -> bool:
    """Whether a person types the program: a notebook or a prompt, where a cell is run again."""
    return not hasattr(sys.modules.get("__main__"), "__file__") and hasattr(sys, "ps1")


def _is_cell_again(before: Registered, now: Registered) -> bool:
    return _is_interactive() and _place(before) == _place(now)


def _names_around(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the names of the function that a function is declared in, for its annotations."""
    if "<locals>" not in getattr(function, "__qualname__", ""):
        return None
    frame = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame.f_globals.get("__name__", "").startswith("qo.") and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_locals


class BaseDeclaring:
    """A decorator that makes functions tasks."""

    def __init__(self, home: BaseTasks, name: str | None = None, options: dict[str, Any] | None = None) -> None:
        self._home = home
        self._name = name
        self._options = options or {}

    def _called(self, what: Any, options: dict[str, Any]) -> Any:
        if callable(what):
            return self._home.declare(what, self._name, dict(self._options))
        if what is not None:
            checked_name("task", what)
        # A mistake is raised where it stands.
        task_options({**options})
        return type(self)(self._home, what, options)


class BaseScheduling:
    """A decorator that gives tasks a schedule."""

    def __init__(self, home: BaseTasks, cron: str, options: dict[str, Any]) -> None:
        for option in options:
            if option not in ScheduleOptions.__annotations__:
                raise unknown("options", "option of a schedule", option, ScheduleOptions.__annotations__)
        self._home = home
        self._cron = _schedule.check_cron(cron)
        self._options = options


# Of each kind of function the first overload is for a first parameter without annotation, which may be the context or
# not: its submits are not checked.


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
        """Declare a task: the function, `async def` or `def`, that runs its jobs.

        Its name is the module's and the function's, unless one is given. `max_concurrent` counts in the whole fleet. A
        first parameter `ctx: qo.Context` gets the context of the attempt; all others are the task's arguments.
        """
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
    """What `qo.App` and `qo.Tasks` share."""

    @property
    def task(self) -> Declaring:
        """Declare a task: `@app.task`, or `@app.task("resize", max_concurrent=10)`."""
        return Declaring(self)

    def schedule(self, cron: str, **options: Unpack[ScheduleOptions]) -> Scheduling:
        """Run a task by the clock, once across the fleet: `@app.schedule("0 3 * * *", timezone="Europe/Berlin")`.

        It stands above `@app.task`, or alone: the function becomes a task then. By default ticks never overlap, and of
        ticks that were missed the latest runs. The schedule is pushed by the app's workers when they start.

        >>> import qo
        >>> app = qo.App("memory:")
        >>> @app.schedule("0 3 * * *", timezone="Europe/Berlin", arguments={"region": "eu"})
        ... @app.task("report", max_concurrent=1)
        ... async def report(region: str) -> None: ...
        >>> app.schedules["report"]["payload"]
        '{"region":"eu"}'
        """
        return Scheduling(self, cron, dict(options))


class BaseRouter(BaseTasks):
    """Tasks that belong to no app until one includes them."""

    def __init__(self, defaults: Mapping[str, Any] | None = None) -> None:
        super().__init__(defaults)
        self._apps: list[weakref.ref[BaseApp]] = []

    def _alive(self) -> list[BaseApp]:
        return [app for app in (reference() for reference in self._apps) if app is not None]

    @property
    def app(self) -> BaseApp:
        """The app that has included it, the newest if there are several. Not part of the interface."""
        if not self._alive():
            from ._app import load_all  # noqa: PLC0415 -- it imports this module

            # It may be in a module that an app names, and has not looked at.
            load_all()
        apps = self._alive()
        if not apps:
            raise LookupError("these tasks are in no app: app.include([…]) with them, or with their module")
        return apps[-1]

    def included_by(self, app: BaseApp) -> None:
        """Belong to an app. Tasks that are declared later are added to it, too. Not part of the interface."""
        self._apps = [*(weakref.ref(other) for other in self._alive() if other is not app), weakref.ref(app)]

    def add(self, registered: Registered) -> None:
        """Add a handler. Two of one name are refused. Not part of the interface."""
        super().add(registered)
        for app in self._alive():
            app.add_all(self)

    def plan(self, task: Any, cron: str, options: dict[str, Any]) -> Any:
        """Give a task, or a function that becomes one, a schedule. Not part of the interface."""
        planned = super().plan(task, cron, options)
        for app in self._alive():
            app.add_all(self)
        return planned


class Tasks(Declares, BaseRouter):
    """Tasks that are declared without an app: `app.include([…])` adds them to one.

    Options that are given here are those of every task that has none of its own.

    >>> import qo
    >>> billing = Tasks(queue="billing", max_attempts=5)
    >>> @billing.task
    ... async def charge(order: int) -> None: ...
    >>> app = qo.App("memory:")
    >>> app.include([billing])
    >>> [name.rpartition(".")[2] for name in app.tasks]
    ['charge']
    """

    def __init__(self, **defaults: Unpack[TaskDefaults]) -> None:
        super().__init__(defaults)
