"""Tests of an app: its jobs in memory, a worker that runs what is due and returns, time that a test moves.

An app of its own for a test:

>>> import asyncio, qo.testing
>>> app = qo.testing.TestApp()
>>> @app.task
... async def greet(name: str) -> str:
...     return f"Hello, {name}"
>>> async def main():
...     await greet.submit("Ann")
...     await greet.options(delay=3600).submit("Bob")
...     first = await app.drain()
...     app.clock.move(hours=1)
...     return first, await app.drain()
>>> first, second = asyncio.run(main())
>>> [ran.result for ran in first], [ran.result for ran in second]
(['Hello, Ann'], ['Hello, Bob'])

An app of your program, with its tasks, its middleware and its lifespan, on a store in memory for a while:

>>> shop = qo.App("postgres://db.internal/shop")
>>> @shop.task
... def ship(order: int) -> str:
...     return f"order {order} is on its way"
>>> with qo.testing.replaced(shop) as test:
...     job = ship.submit_sync(7)
...     ran = test.drain_sync().check()
>>> ran[0].result
'order 7 is on its way'

With pytest there is a fixture `qo_app`, a new `TestApp` for each test; `fixture(app)` makes one that replaces an app.

What a test with it does not show:

- Neither `.qo.toml` nor the environment counts: limits and schedules are those of the code.
- `submit_in` submits at once, whatever becomes of the transaction.
- The store's time stands still; the worker's does not. A `timeout=` of a task is real time.
- A handler that hangs does not end the process. One that ignores its cancel keeps its thread.
- Handlers of `--processes` run in the process of the test.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._app import _APPS, App  # pyright: ignore[reportPrivateUsage]
from ._client import Client
from ._memory import Clock
from ._trial import Drained, Ran, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime
    from types import TracebackType

    from typing_extensions import Self

    from ._app import BaseApp

__all__ = ["Clock", "Drained", "Ran", "TestApp", "Trial", "fixture", "replaced"]


class TestApp(App):
    """An app on a store in memory that is its own. Time stands still there until `clock` moves it.

    It is not the process's default app unless `qo.set_default` makes it so. `with TestApp() as app:` closes it.
    """

    # Not a class of tests, whatever pytest thinks of its name.
    __test__ = False

    def __init__(
        self,
        *,
        name: str | None = None,
        now: datetime | None = None,
        lifespan: Callable[[Any], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        """Make the store. `now` is its time at the beginning; it defaults to that of this machine."""
        super().__init__("memory:", name=name, lifespan=lifespan)
        _APPS.discard(self)
        self._trial = Trial(self, now)
        _use(self, self._trial)

    @property
    def clock(self) -> Clock:
        """The store's time, which the test moves: `app.clock.move(hours=1)`."""
        return self._trial.clock

    async def drain(self, *, timeout: float = 30.0) -> Drained:
        """Run what is due, and what that submits, until nothing is left; return the attempts that were made.

        A worker runs them as in production: side by side, `async def` on this event loop, `def` in threads. What is
        due later (a delay, a retry, a schedule) waits until the clock moves. A handler's exception does not end it:
        look at the outcomes, or call `check()` on them. TimeoutError if it takes longer than `timeout` seconds.
        """
        return await self._trial.drain(timeout=timeout)

    def drain_sync(self, *, timeout: float = 30.0) -> Drained:
        """Do what `drain` does, without asyncio, one job at a time, in the order of the claim.

        A `def` handler runs in this thread, so that it sees what the test has done in a transaction of its own.
        """
        return self._trial.drain_sync(timeout=timeout)

    def __enter__(self) -> Self:
        """Return the app."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the app."""
        self._trial.close()


def _use(app: BaseApp, trial: Trial) -> None:
    """Let an app have the client of a trial."""
    if isinstance(app, App):
        kind: Any = Client
    else:
        from .sync import Client as kind  # noqa: N813, PLC0415 -- most tests do without it
    client = kind("memory:", connection=trial.namespace.connection)
    client.namespace = trial.namespace
    client.concurrency = type(client.concurrency)(trial.namespace)
    target: Any = app
    target.client = client


@contextmanager
def replaced(app: BaseApp, *, now: datetime | None = None) -> Generator[Trial, None, None]:
    """Let an app have its jobs in memory, for the duration of a `with` block.

    All that the block submits by the app's tasks, classes and `app.client` goes there, and nothing to the app's own
    store. What `with` returns runs it: `drain()`, `drain_sync()`, `clock`.
    """
    before = vars(app)["_client"]
    trial = Trial(app, now)
    target: Any = app
    _use(app, trial)
    try:
        yield trial
    finally:
        target.client = before
        trial.close()


def fixture(app: BaseApp | str, *, now: datetime | None = None, name: str | None = None) -> Any:
    """Make a pytest fixture that replaces an app: the test gets what `replaced` returns.

    `app` is the app, or its name as `qo worker` takes it. In `conftest.py`::

        shop = qo.testing.fixture("shop.jobs:app")

    and in a test::

        def test_an_order_is_shipped(shop):
            ship.submit_sync(7)
            assert shop.drain_sync().check()[0].result == "order 7 is on its way"
    """
    import pytest  # noqa: PLC0415 -- programs do without it

    def replacement() -> Generator[Trial, None, None]:
        with replaced(_loaded(app), now=now) as trial:
            yield trial

    return pytest.fixture(name=name)(replacement)


def _loaded(app: BaseApp | str) -> BaseApp:
    if not isinstance(app, str):
        return app
    from ._target import load  # noqa: PLC0415 -- most tests do without it

    return load(app)
