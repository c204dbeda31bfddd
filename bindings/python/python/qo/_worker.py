"""The bridge between the Rust worker and Python handlers.

The worker claims, renews and settles on threads of its own. This module takes the jobs that it has claimed, all at
once, runs them, and hands all results of one round of the event loop back at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import logging
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

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


_AGAIN = 1.0
"""Seconds until a first thread that could not be started is tried again."""


class Listener:
    """Hears the signals of an event loop, for all workers that run on it. The main thread alone uses it."""

    _all: ClassVar[dict[asyncio.AbstractEventLoop, Listener]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: list[Running] = []
        self._before: list[tuple[signal.Signals, Any]] = []
        with suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                loop.add_signal_handler(number, self.heard)
                self._before.append((number, before))

    @classmethod
    def join(cls, loop: asyncio.AbstractEventLoop, running: Running) -> Listener | None:
        """Tell a worker of signals, until it leaves. None where there are no signals to hear."""
        if threading.current_thread() is not threading.main_thread():
            return None
        listener = cls._all.get(loop)
        if listener is None:
            listener = cls(loop)
            if not listener._before:
                return None
            cls._all[loop] = listener
        listener._running.append(running)
        return listener

    def leave(self, running: Running) -> None:
        """Tell a worker of no more signals. The last one restores the handlers that were there before the first."""
        self._running.remove(running)
        if self._running:
            return
        del self._all[self._loop]
        for number, before in self._before:
            self._loop.remove_signal_handler(number)
            if before is not None and not _is_of_loop(before):
                signal.signal(number, before)

    def heard(self) -> None:
        """Pass a signal on to every worker."""
        for running in list(self._running):
            running.signalled()


def _is_of_loop(handler: Any) -> bool:
    """Whether `add_signal_handler` of a loop has installed a handler: it does nothing by itself."""
    if isinstance(getattr(handler, "__self__", None), asyncio.AbstractEventLoop):
        return True
    return str(getattr(handler, "__module__", None)).partition(".")[0] in ("asyncio", "uvloop")


def _not_passed_on(error: BaseException) -> Outcome:
    return ("retry", f"its outcome could not be passed on: {attempt.told(error)}", None)


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
        self._listener: Listener | None = None
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
            inside = await self._app.enter_lifespan()
            try:
                await self._work(until_signal=until_signal)
            finally:
                await self._app.exit_lifespan(inside)
        finally:
            _logging.detach()

    async def _work(self, *, until_signal: bool) -> None:
        loop = asyncio.get_running_loop()
        listener = self._listener = Listener.join(loop, self) if until_signal else None
        try:
            pending = self._native.run()
            loop.add_reader(self._native.descriptor(), self._take)
            try:
                if self._most_threads and any(not task.is_async for task in self._tasks):
                    self._add_first_thread()
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
            self._listener = None
            if listener is not None:
                listener.leave(self)

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
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:  # noqa: PERF203
                cancelled = error
                self._is_cancelled = True
                self._native.release()
        if cancelled is not None:
            raise cancelled

    def drain(self) -> None:
        """Take no more jobs, and end when those that run have ended. Callable from any thread."""
        self._native.drain()

    def release(self) -> None:
        """Give the jobs that run back, and end. Callable from any thread."""
        self._native.release()

    def signalled(self) -> None:
        """Do what the next signal asks for."""
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
                one = loop.create_task(self._run_one(number, self._tasks[task], payload, context))
                running[number] = (one, context)
                one.add_done_callback(functools.partial(self._record_escaped, number))
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

    def _record_escaped(self, number: int, task: asyncio.Task[None]) -> None:
        """Record a task that has ended without a record: it was cancelled before its first step, or twice."""
        found = self._running.get(number)
        if found is None or found[0] is not task:
            return
        if task.cancelled():
            self._record(number, ("cancelled", "", None) if found[1].cancelled else _GIVEN_BACK)
            return
        error = task.exception()
        assert error is not None, "a task that returns has recorded its outcome"  # noqa: S101
        self._record(number, _not_passed_on(error))

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
        if self._listener is not None:
            self._listener.heard()
            return

        def pass_on() -> None:
            raise error

        self._loop.call_soon(pass_on)

    def _flush(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._hand_in(ended, is_sync=False)

    def _hand_in(self, ended: list[tuple[int, str, str, float | None]], *, is_sync: bool) -> None:
        """Pass outcomes on. One that the extension refuses takes none of the others with it."""
        try:
            self._native.done(is_sync, ended)
        except BaseException as error:
            # No exception may lose a job, nor a panic in Rust.
            if len(ended) > 1:
                for one in ended:
                    self._hand_in([one], is_sync=is_sync)
            else:
                _LOG.exception("the outcome of a job could not be passed on: it is tried again")
                with suppress(Exception):
                    self._native.done(is_sync, [(ended[0][0], *_not_passed_on(error))])
            if isinstance(error, KeyboardInterrupt):
                raise

    def _tell_stuck(self, context: Context) -> None:
        if self._on_stuck is not None:
            try:
                self._on_stuck(context)
            except Exception:  # noqa: BLE001 -- the rest of the batch must run
                _LOG.exception("on_stuck raised an exception")

    def _add_first_thread(self) -> None:
        assert self._loop is not None, "it runs"  # noqa: S101
        if not self._add_thread():
            # No other thread runs the jobs that come.
            self._loop.call_later(_AGAIN, self._add_first_thread)

    def _add_thread(self) -> bool:
        """Start a thread, unless there are enough. False if the system has none to give."""
        with self._lock:
            if len(self._threads) >= self._most_threads:
                return True
            thread = threading.Thread(target=self.serve, name=f"qo-handler-{len(self._threads) + 1}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                _LOG.error("a thread for handlers could not be started: %s", error)
                return False
            # Behind the start: a thread that has not begun cannot be joined.
            self._threads.append(thread)
            self._idle += 1
        return True

    def _next(self) -> tuple[int, int, str, _qo.Context] | None:
        """Wait for the next item for a thread; None once the worker has ended."""
        while True:
            try:
                return self._native.next()
            except BaseException:  # noqa: BLE001, PERF203 -- a panic in Rust must not end this thread
                _LOG.exception("a job could not be handed to its handler: it is tried again")

    def serve(self) -> None:
        """Run jobs of plain functions in this thread, until the worker has ended."""
        tasks, lock = self._tasks, self._lock
        while (item := self._next()) is not None:
            number, task, payload, native_context = item
            if task == _STUCK and self._loop is not None:
                with lock:
                    stuck = self._busy.get(number)
                if stuck is not None:
                    with suppress(RuntimeError):
                        self._loop.call_soon_threadsafe(self._tell_stuck, stuck)
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
            try:
                outcome = contextvars.Context().run(attempt.run_sync, tasks[task], payload, context)
            except BaseException as error:  # noqa: BLE001 -- no exception may lose a job, or end this thread
                outcome = _not_passed_on(error)
            with lock:
                del self._busy[number]
                self._idle += 1
            self._hand_in([(number, *outcome)], is_sync=True)
