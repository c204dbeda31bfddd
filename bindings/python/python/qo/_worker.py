"""The bridge between the Rust worker and Python handlers.

The worker claims, renews and settles on threads of its own. This module takes the jobs that it has claimed, all at
once, runs them, and hands all results of one round of the event loop back at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import _attempt as attempt
from . import _logging, _qo
from ._attempt import Outcome
from ._call import answer
from ._context import Context
from ._errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._app import BaseApp
    from ._registered import Registered

__all__ = ["Outcome", "Running", "run_async", "run_sync"]

_LOG = logging.getLogger("qo")
_STOP, _STUCK = -1, -2
_LOOK = 0.05
_ROUNDS = 3
_GIVEN_BACK: Outcome = ("snooze", "", 0.0)
"""No attempt is used."""
_IMPATIENT = 130
"""The exit code after a third signal: that of an interrupted process."""


def run_sync(_app: BaseApp, registered: Registered, payload: str, context: Context) -> Outcome:
    """Make an attempt with a plain function, in this thread."""
    return contextvars.Context().run(attempt.run_sync, registered, payload, context)


async def run_async(_app: BaseApp, registered: Registered, payload: str, context: Context) -> Outcome:
    """Make an attempt with a coroutine function, in this task."""
    try:
        return await attempt.run_async(registered, payload, context)
    except (asyncio.CancelledError, KeyboardInterrupt) as error:
        return attempt.outcome_of(registered, error, context)


class Running:
    """A worker at work, on the event loop that `run` is called on."""

    def __init__(
        self,
        app: BaseApp,
        described: dict[str, Any],
        *,
        threads: bool = True,
        on_stuck: Callable[[Context], Any] | None = None,
    ) -> None:
        app.load()
        self._app = app
        self._tasks = [app.tasks[task["options"]["task"]] for task in described["tasks"]]
        for task in self._tasks:
            task.compile()
        try:
            self._native = _qo.Worker(app.connection, json.dumps(described))
        except ValueError as error:
            raise Invalid(f"worker: {error}") from None
        self._has_children = described.get("processes") is not None
        self._on_stuck = on_stuck
        self._running: dict[int, tuple[asyncio.Task[None], Context]] = {}
        self._ended: list[tuple[int, str, str, float | None]] = []
        self._is_listening = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_cancelled = False
        # One more than jobs: it hears of jobs that are stuck.
        self._most_threads = (described.get("max_concurrent_tasks") or 100) + 1 if threads else 0
        self._threads: list[threading.Thread] = []
        self._busy: dict[int, Context] = {}
        self._idle = 0
        self._lock = threading.Lock()
        self._steps = iter([self._drain_by_signal, self._release_by_signal])

    async def run(self, *, until_signal: bool = True) -> None:
        """Work until it is told to stop; by SIGINT and SIGTERM, too, if it runs in the main thread.

        The first signal drains, the second gives the jobs back, the third ends the process. If the task that runs this
        is cancelled, the jobs are given back. It returns when all handlers have ended.
        """
        self._loop = asyncio.get_running_loop()
        _logging.attach()
        try:
            if self._has_children:
                await self._work(until_signal=until_signal)
                return
            await self._app.enter_lifespan()
            try:
                await self._work(until_signal=until_signal)
            finally:
                await self._app.exit_lifespan()
        finally:
            _logging.detach()

    async def _work(self, *, until_signal: bool) -> None:
        loop = asyncio.get_running_loop()
        heard = self._listen(loop) if until_signal else []
        try:
            pending = self._native.run()
            loop.add_reader(self._native.descriptor(), self._take)
            try:
                if self._most_threads and any(not task.is_async for task in self._tasks):
                    self._add_thread()
                await self._until_ended(loop, pending)
            finally:
                loop.remove_reader(self._native.descriptor())
                self._flush()
                for thread in self._threads:
                    # Of those that are stuck, nothing more is expected.
                    thread.join(_LOOK if self._busy else None)
            # Raises what ended it.
            await answer(pending)
        finally:
            for number, before in heard:
                loop.remove_signal_handler(number)
                if before is not None:
                    signal.signal(number, before)
            self._is_listening = False

    async def _until_ended(self, loop: asyncio.AbstractEventLoop, pending: _qo.Pending) -> None:
        """Wait for the end of the worker, whatever happens to this task: until then handlers may run."""
        ended: asyncio.Future[None] = loop.create_future()

        def told() -> None:
            if not ended.done():
                ended.set_result(None)

        pending.when_done(loop.call_soon_threadsafe, told)
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.wait([ended], timeout=None if cancelled is None else _LOOK)
            except asyncio.CancelledError as error:
                cancelled = error
                self._is_cancelled = True
                self._native.release()
            # Whatever cancelled this task may have cancelled those of the handlers.
            self._record_unstarted()
        if cancelled is not None:
            raise cancelled

    def drain(self) -> None:
        """Take no more jobs, and end when those that run have ended. Callable from any thread."""
        self._native.drain()

    def release(self) -> None:
        """Give the jobs that run back, and end. Callable from any thread."""
        self._native.release()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> list[tuple[signal.Signals, Any]]:
        if threading.current_thread() is not threading.main_thread():
            return []
        heard: list[tuple[signal.Signals, Any]] = []
        with suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                loop.add_signal_handler(number, self._signalled)
                heard.append((number, before))
        self._is_listening = bool(heard)
        return heard

    def _signalled(self) -> None:
        step = next(self._steps, None)
        if step is None:
            _LOG.warning("ending at once: the session expires, and its jobs run again")
            os._exit(_IMPATIENT)
        step()

    def _drain_by_signal(self) -> None:
        _LOG.info("draining: running jobs finish, no more are taken; a second signal gives them back")
        self._native.drain()

    def _release_by_signal(self) -> None:
        _LOG.info("releasing: running jobs are stopped and given back")
        self._native.release()

    def _take(self) -> None:
        loop, running = self._loop, self._running
        assert loop is not None, "it runs"  # noqa: S101
        for number, task, payload, native in self._native.take():
            if task >= 0:
                context = Context(native)
                one = self._run_one(number, self._tasks[task], payload, context)
                running[number] = (loop.create_task(one), context)
                continue
            found = running.get(number)
            if found is None:
                continue
            if task == _STOP:
                # Behind its first step: a task that is cancelled before it never runs at all.
                loop.call_soon(found[0].cancel, payload)
            elif task == _STUCK:
                self._tell_stuck(found[1])

    async def _run_one(self, number: int, registered: Registered, payload: str, context: Context) -> None:
        try:
            outcome = await attempt.run_async(registered, payload, context)
        except KeyboardInterrupt as error:
            outcome = attempt.outcome_of(registered, error, context)
            self._interrupted(error)
        except asyncio.CancelledError as error:
            is_given_back = not context.cancelled and await self._is_torn_down()
            outcome = _GIVEN_BACK if is_given_back else attempt.outcome_of(registered, error, context)
        self._record(number, outcome)

    def _record(self, number: int, outcome: Outcome) -> None:
        del self._running[number]
        if not self._ended:
            assert self._loop is not None, "it runs"  # noqa: S101
            self._loop.call_soon(self._flush)
        self._ended.append((number, *outcome))

    def _record_unstarted(self) -> None:
        """Give jobs back whose task was cancelled before its first step: nothing of it has run."""
        for number in [number for number, (task, _) in self._running.items() if task.done()]:
            self._record(number, _GIVEN_BACK)

    async def _is_torn_down(self) -> bool:
        """Whether the task that runs the worker was cancelled, too: the event loop ends."""
        for _ in range(_ROUNDS):
            if self._is_cancelled:
                return True
            # That task may hear of it a little later than this one.
            await asyncio.sleep(0)
        return self._is_cancelled

    def _interrupted(self, error: KeyboardInterrupt) -> None:
        """Do what SIGINT asks for, although it was raised in a handler."""
        assert self._loop is not None, "it runs"  # noqa: S101
        if self._is_listening:
            self._signalled()
            return

        def pass_on() -> None:
            raise error

        self._loop.call_soon(pass_on)

    def _flush(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._native.done(False, ended)  # noqa: FBT003

    def _tell_stuck(self, context: Context) -> None:
        if self._on_stuck is not None:
            self._on_stuck(context)

    def _add_thread(self) -> None:
        with self._lock:
            if len(self._threads) >= self._most_threads:
                return
            self._idle += 1
            thread = threading.Thread(target=self.serve, name=f"qo-handler-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
        thread.start()

    def serve(self) -> None:
        """Run jobs of plain functions in this thread, until the worker has ended."""
        native, tasks, lock = self._native, self._tasks, self._lock
        while (item := native.next()) is not None:
            number, task, payload, native_context = item
            if task == _STUCK and number in self._busy and self._loop is not None:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._tell_stuck, self._busy[number])
            if task < 0:
                # A handler that must stop sees `ctx.cancelled`.
                continue
            context = Context(native_context)
            with lock:
                self._busy[number] = context
                self._idle -= 1
                is_last = self._idle <= 0
            if is_last:
                self._add_thread()
            outcome = contextvars.Context().run(attempt.run_sync, tasks[task], payload, context)
            with lock:
                del self._busy[number]
                self._idle += 1
            native.done(True, [(number, *outcome)])  # noqa: FBT003
