"""An app: its store, its tasks, and the worker that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from ._client import Client
from ._errors import Invalid
from ._options import Backoff, Length, SubmitOptions, milliseconds
from ._task import Named, Plain, Registered, Task, TaskOptions
from ._worker import Running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._context import Context

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[..., Any]")


def per_key_limits(tasks: list[Registered]) -> dict[str, int]:
    """Limits of every key, by group."""
    return {
        f"{task.options.group or task.name}/*": task.options.max_concurrent_per_key
        for task in tasks
        if task.options.max_concurrent_per_key is not None
    }


def described(app: str | None, tasks: list[Registered], options: dict[str, Any]) -> dict[str, Any]:
    """Describe a worker as Rust takes it."""
    lengths = {"lease": "lease_ms", "cancel_grace": "cancel_grace_ms", "poll_interval": "poll_interval_ms"}
    known = {
        "name",
        "queues",
        "max_concurrent_tasks",
        "claim_batch_size",
        "max_claim_batch",
        "max_claim_per_worker",
        "prefetch_buffer",
        "claim_lease_ms",
        *lengths,
    }
    worker: dict[str, Any] = {"app": app}
    for name, value in options.items():
        if name not in known:
            rule = f"there is no such option of a worker: there are {', '.join(sorted(known))}"
            raise Invalid.of("options", name, rule)
        if value is not None:
            worker[lengths.get(name, name)] = milliseconds(name, value) if name in lengths else value
    limits = per_key_limits(tasks)
    if limits:
        worker["configuration"] = {"limits": limits, **({"app": app} if app else {})}
    return worker


class App:
    """A service: where its jobs are, and the functions that run them.

    Making it opens nothing and starts no thread.

    >>> app = App("memory:", name="shop")
    >>> @app.task(max_concurrent=10)
    ... async def call_api(url: str) -> int:
    ...     return len(url)
    >>> call_api.name.endswith("call_api")
    True
    """

    def __init__(self, url: str, *, name: str = "default") -> None:
        self.name = name
        self.client = Client(url)
        self.tasks: dict[str, Registered] = {}
        self._running: Running | None = None

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        name: str | None = None,
        /,
        *,
        queue: str | None = None,
        priority: int | None = None,
        timeout: Length | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        retry_on: tuple[type[BaseException], ...] | None = None,
        fail_on: tuple[type[BaseException], ...] = (),
        max_concurrent: int | None = None,
        max_concurrent_per_key: int | None = None,
        group: str | None = None,
    ) -> Declaring: ...

    def task(self, what: Any = None, /, **options: Any) -> Any:
        """Declare a task: the function that runs its jobs.

        Its name is the module's and the function's, unless one is given. `max_concurrent` counts in the whole fleet.
        """
        if callable(what):
            return Declaring(self, None, {})(what)
        return Declaring(self, what, options)

    def add(self, registered: Registered) -> None:
        """Add a handler. Two of one name are refused."""
        if registered.name in self.tasks:
            raise Invalid.of("task", registered.name, "is declared twice")
        self.tasks[registered.name] = registered

    async def run(self, *, until_signal: bool = True, **options: Any) -> None:
        """Run a worker of this app's tasks until SIGTERM or SIGINT, or until `shutdown` is called."""
        tasks = list(self.tasks.values())
        self._running = Running(self.client.connection, tasks, described(self.name, tasks, options))
        try:
            await self._running.run(until_signal=until_signal)
        finally:
            self._running = None

    def shutdown(self) -> None:
        """End the worker that `run` started, when the jobs that run have ended."""
        if self._running is not None:
            self._running.drain()

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()


class Declaring:
    """A decorator that makes a function a task."""

    def __init__(self, app: App, name: str | None, options: dict[str, Any]) -> None:
        self._app = app
        self._name = name
        submit: SubmitOptions = {}
        for option in ("queue", "priority", "max_attempts"):
            value = options.pop(option, None)
            if value is not None:
                submit[option] = value
        self._options = TaskOptions(**options, submit=submit)

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, function: Any, /) -> Any:
        """Declare the task."""
        name = self._name or f"{function.__module__}.{function.__qualname__}".replace("<locals>.", "")
        registered = Named(name, function, self._options)
        self._app.add(registered)
        return Task(self._app, registered)


class Worker:
    """A worker of a client, whose handlers take `(data, ctx)`.

    `shards` is accepted and ignored: any worker may run any job.
    """

    def __init__(self, queue: Client, name: str | None = None, shards: object = None, **options: Any) -> None:  # noqa: ARG002
        self.queue = queue
        self.name = name
        self._options = options
        self._tasks: dict[str, Registered] = {}
        self._running: Running | None = None

    def task(self, name: str, *, max_concurrent: int | None = None, **options: Any) -> Callable[[F], F]:
        """Declare a task: `@worker.task("resize", max_concurrent=10)`."""

        def declare(function: F) -> F:
            if name in self._tasks:
                raise Invalid.of("task", name, "is declared twice")
            self._tasks[name] = Plain(name, function, TaskOptions(max_concurrent=max_concurrent, **options))
            return function

        return declare

    async def run(self, *, until_signal: bool = True) -> None:
        """Work until SIGTERM or SIGINT, or until `shutdown` is called."""
        tasks = list(self._tasks.values())
        worker = described(None, tasks, {"name": self.name, **self._options})
        self._running = Running(self.queue.connection, tasks, worker)
        try:
            await self._running.run(until_signal=until_signal)
        finally:
            self._running = None

    def shutdown(self) -> None:
        """End when the jobs that run have ended."""
        if self._running is not None:
            self._running.drain()
