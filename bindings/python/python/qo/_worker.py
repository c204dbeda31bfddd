"""The bridge between the Rust worker and Python handlers.

The worker claims, renews and settles on threads of its own. This module takes the jobs that it has claimed, all at
once, runs them, and hands all results of one round of the event loop back at once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import traceback
from typing import TYPE_CHECKING, Any

from . import _qo
from ._call import answer
from ._codec import dumps
from ._context import CURRENT, Context
from ._errors import Fail, Invalid, Retry, Snooze

if TYPE_CHECKING:
    from ._task import Registered

Outcome = tuple[str, str, float | None]

# A traceback is cut in its middle: the first lines say where it began, the last what went wrong.
_LONGEST = 8_000


def _told(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error)).rstrip()
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"
    return text


def outcome_of(registered: Registered, error: BaseException, context: Context) -> Outcome:
    """Decide what an exception of a handler means."""
    options = registered.options
    if isinstance(error, Snooze):
        return ("snooze", "", error.delay)
    if isinstance(error, asyncio.CancelledError) and context.cancelled:
        return ("cancelled", "", None)
    if isinstance(error, (Fail, Invalid, *options.fail_on)):
        return ("fail", _told(error), None)
    if isinstance(error, Retry):
        return ("retry", _told(error), error.delay)
    if options.retry_on is not None and not isinstance(error, options.retry_on):
        return ("fail", _told(error), None)
    return ("retry", _told(error), None)


class Running:
    """A worker at work, on the event loop that it was started on."""

    def __init__(self, connection: _qo.Connection, tasks: list[Registered], described: dict[str, Any]) -> None:
        handled = [{"options": task.options.described(task.name), "is_sync": not task.is_async} for task in tasks]
        self._tasks = tasks
        self._native = _qo.Worker(connection, json.dumps({"tasks": handled, **described}))
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ended: list[tuple[int, str, str, float | None]] = []
        self._loop = asyncio.get_running_loop()
        self._most_threads = described.get("max_concurrent_tasks") or 100
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, *, until_signal: bool) -> None:
        """Work until it is told to stop, or by SIGINT and SIGTERM: the first drains, the second gives jobs back."""
        pending = self._native.run()
        self._loop.add_reader(self._native.descriptor(), self._take)
        if any(not task.is_async for task in self._tasks):
            self._add_thread()
        heard = self._listen() if until_signal else []
        try:
            await answer(pending)
        except asyncio.CancelledError:
            self._native.release()
            raise
        finally:
            self._loop.remove_reader(self._native.descriptor())
            for number in heard:
                self._loop.remove_signal_handler(number)
            if self._running:
                await asyncio.wait(self._running.values())
            self._flush()

    def drain(self) -> None:
        """Take no more jobs, and end when those that run have ended."""
        self._native.drain()

    def release(self) -> None:
        """Give the jobs that run back, and end."""
        self._native.release()

    def _listen(self) -> list[signal.Signals]:
        if threading.current_thread() is not threading.main_thread():
            return []
        steps = iter([self._native.drain, self._native.release])

        def told() -> None:
            step = next(steps, None)
            if step is not None:
                step()

        numbers = [signal.SIGINT, signal.SIGTERM]
        for number in numbers:
            self._loop.add_signal_handler(number, told)
        return numbers

    def _take(self) -> None:
        for number, task, payload, native in self._native.take():
            if task < 0:
                running = self._running.get(number)
                if running is not None:
                    running.cancel(payload)
                continue
            attempt = self._attempt(number, self._tasks[task], payload, Context(native))
            running = self._loop.create_task(attempt)
            self._running[number] = running

    async def _attempt(self, number: int, registered: Registered, payload: str, context: Context) -> None:
        CURRENT.set(context)
        try:
            arguments, named = registered.arguments(payload, context)
            returned = await registered.function(*arguments, **named)
            outcome: Outcome = ("succeed", dumps(returned, path="output"), None)
        except BaseException as error:  # noqa: BLE001 -- whatever it was, the attempt has ended with it
            outcome = outcome_of(registered, error, context)
        self._running.pop(number, None)
        if not self._ended:
            self._loop.call_soon(self._flush)
        self._ended.append((number, *outcome))

    def _flush(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._native.done(False, ended)  # noqa: FBT003

    def _add_thread(self) -> None:
        with self._lock:
            if len(self._threads) >= self._most_threads:
                return
            self._idle += 1
            thread = threading.Thread(target=self._serve, name=f"qo-handler-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (item := self._native.next()) is not None:
            number, task, payload, native = item
            if task < 0:
                # The handler sees `ctx.cancelled`.
                continue
            with self._lock:
                self._idle -= 1
                is_last = self._idle == 0
            if is_last:
                self._add_thread()
            registered, context = self._tasks[task], Context(native)
            token = CURRENT.set(context)
            try:
                arguments, named = registered.arguments(payload, context)
                outcome: Outcome = ("succeed", dumps(registered.function(*arguments, **named), path="output"), None)
            except BaseException as error:  # noqa: BLE001
                outcome = outcome_of(registered, error, context)
            CURRENT.reset(token)
            self._native.done(True, [(number, *outcome)])  # noqa: FBT003
            with self._lock:
                self._idle += 1
