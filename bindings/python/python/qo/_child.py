"""A child process of a worker (`--processes=N`): it loads the app and runs one job at a time.

    python -m qo._child MODULE:OBJECT [--quiet]

The worker starts it under a guard, with a socket whose number is in QO_CHILD_SOCKET. It ends when the worker closes
the socket.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import _logging, _qo
from ._context import Context
from ._target import TargetError, load
from ._worker import run_async, run_sync

if TYPE_CHECKING:
    from ._app import BaseApp
    from ._worker import Outcome


_LOOK = 0.25


class Runner:
    """Runs the jobs of this process, on one event loop that is kept from job to job."""

    def __init__(self, app: BaseApp, child: _qo.Child) -> None:
        self._app = app
        self._child = child
        self._loop = asyncio.new_event_loop()
        self._running: asyncio.Task[Outcome] | None = None
        self._context: Context | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(child.descriptor(), self._look)

    def run(self) -> None:
        """Run jobs until no more come."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._app.enter_lifespan())
            self._child.ready(list(self._app.tasks))
            while (job := self._child.next()) is not None:
                _, payload, native = job
                self._child.done(*self._one(payload, Context(native)))
        finally:
            self._loop.run_until_complete(self._app.exit_lifespan())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _one(self, payload: str, context: Context) -> Outcome:
        registered = self._app.tasks[context.task]
        if not registered.is_async:
            return run_sync(self._app, registered, payload, context)
        self._running = self._loop.create_task(run_async(self._app, registered, payload, context))
        self._context = context
        # What has come together with the job, or was read by the handler itself, makes the socket readable no more.
        self._loop.call_soon(self._look_again)
        try:
            return self._loop.run_until_complete(self._running)
        finally:
            self._running = self._context = None
            if self._timer is not None:
                self._timer.cancel()

    def _look_again(self) -> None:
        self._look()
        self._timer = self._loop.call_later(_LOOK, self._look_again)

    def _look(self) -> None:
        """Hear what the worker says while a coroutine runs."""
        self._child.look()
        if self._running is not None and self._context is not None and self._context.cancelled:
            # Once: what it does to end must not be cancelled by the next message.
            self._context = None
            self._running.cancel()


def _ignore(*_: Any) -> None:
    """Hear a signal. The worker decides what becomes of the job; programs that a job starts do not inherit this."""


def main(target: str, *, quiet: bool) -> int:
    """Run the child."""
    _logging.show(quiet=quiet)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)
    child = _qo.Child(int(os.environ.pop("QO_CHILD_SOCKET")))
    try:
        app = load(target)
        app.load()
    except TargetError as error:
        child.failed(str(error))
        return 1
    except BaseException:  # noqa: BLE001 -- whatever the module raised, the worker must hear of it
        child.failed(traceback.format_exc())
        return 1
    _logging.attach()
    with suppress(BrokenPipeError):
        Runner(app, child).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], quiet="--quiet" in sys.argv[2:]))
