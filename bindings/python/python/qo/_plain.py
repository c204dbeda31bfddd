"""A worker whose handlers take the payload itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._app import BaseApp, forget
from ._options import name as checked_name
from ._registered import Plain
from ._tasks import task_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from ._client import Client
    from ._context import Context
    from ._settings import WorkerSettings
    from ._tasks import TaskDeclaration

F = TypeVar("F", bound="Callable[..., Any]")


class BaseWorker:
    """What `qo.Worker` and `qo.sync.Worker` share."""

    def __init__(self, queue: Any, name: str | None = None, shards: object = None, **options: Any) -> None:  # noqa: ARG002
        self.queue = queue
        self.name = name
        self._options: dict[str, Any] = {"name": name, **options}
        self._app = BaseApp(queue.url)
        # It stands for no app of the program.
        forget(self._app)
        self._app.client = queue

    def task(self, name: str, **options: Unpack[TaskDeclaration]) -> Callable[[F], F]:
        """Declare a task: `@worker.task("resize", max_concurrent=10)`. Its handler takes `(data, ctx)`, or `(data)`."""
        checked_name("task", name)

        def declare(function: F) -> F:
            self._app.add(Plain(name, function, task_options(dict(options))))
            return function

        return declare

    def shutdown(self) -> None:
        """End when the jobs that run have ended. Callable from any thread."""
        self._app.shutdown()


class Worker(BaseWorker):
    """A worker of a client, whose handlers take `(data, ctx)`: their payload is the value itself.

    `shards` is accepted and ignored: any worker may run any job. The other options are those of `App.run`.

    >>> import asyncio, qo
    >>> async def main():
    ...     queue = await qo.connect("memory:")
    ...     worker = qo.Worker(queue, "worker-1")
    ...     @worker.task("double", max_concurrent=10)
    ...     async def double(data, ctx):
    ...         return data * 2
    ...     running = asyncio.create_task(worker.run(until_signal=False))
    ...     job = await queue.submit("double", 21, concurrency_limit=5)
    ...     print(await job.result(timeout=30))
    ...     worker.shutdown()
    ...     await running
    >>> asyncio.run(main())
    42
    """

    def __init__(
        self, queue: Client, name: str | None = None, shards: object = None, **options: Unpack[WorkerSettings]
    ) -> None:
        super().__init__(queue, name, shards, **options)

    async def run(
        self, *, until_signal: bool = True, on_stuck: Literal["exit", "tell"] | Callable[[Context], Any] = "exit"
    ) -> None:
        """Work until SIGTERM or SIGINT, or until `shutdown` is called."""
        await self._app.run_worker(until_signal=until_signal, on_stuck=on_stuck, **self._options)
