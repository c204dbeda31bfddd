"""One attempt: the call of a handler, and what its end means."""

from __future__ import annotations

import asyncio
import inspect
import os
import traceback
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ._codec import Unfit, dumps, unicode
from ._context import CURRENT
from ._errors import Fail, Retry, Snooze

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._context import Context
    from ._registered import Registered

Outcome = tuple[str, str, float | None]
"""What an attempt came to: `succeed`, `retry`, `fail`, `snooze` or `cancelled`; the result or the error; seconds."""

_HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120

# The store keeps 8 KiB of an error. The first lines say what it was, the last of a traceback where it was.
_LONGEST = 7_500


def _without_own_frames(told: traceback.TracebackException, seen: set[int]) -> None:
    if id(told) in seen:
        return
    seen.add(id(told))
    frames = [frame for frame in told.stack if not frame.filename.startswith(_HERE)]
    told.stack = traceback.StackSummary.from_list(frames)
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        if other is not None:
            _without_own_frames(other, seen)


def told(error: BaseException) -> str:
    """Write an exception for people: what it is, an empty line, its traceback without qo's own frames."""
    try:
        return unicode(_written(error))
    except Exception as other:  # noqa: BLE001 -- an exception of a user's may raise when it is written
        return f"{type(error).__name__}, which cannot be written: {type(other).__name__}"


def _written(error: BaseException) -> str:
    captured = traceback.TracebackException.from_exception(error)
    _without_own_frames(captured, set())
    summary = "".join(captured.format_exception_only()).strip()
    if isinstance(error, (Fail, Retry, Unfit)):
        # It was raised to say this, and no more.
        summary = str(error) or summary
    if len(summary) > _LONGEST // 2:
        summary = f"{summary[: _LONGEST // 2]}…"
    if isinstance(error, Unfit):
        # It is about the payload, not about a place in the program.
        return summary
    text = "".join(captured.format()).rstrip()
    room = _LONGEST - len(summary)
    if len(text) > room:
        text = f"{text[: room // 4]}\n…\n{text[-3 * room // 4 :]}"
    return f"{summary}\n\n{text}"


def outcome_of(registered: Registered, error: BaseException, context: Context) -> Outcome:
    """Decide what an exception of a handler means."""
    options = registered.options
    if isinstance(error, Snooze):
        return ("snooze", "", error.delay)
    if isinstance(error, asyncio.CancelledError) and context.cancelled:
        return ("cancelled", "", None)
    if isinstance(error, (Fail, Unfit)) or isinstance(error, options.fail_on):  # noqa: SIM101 -- a tuple, or a class
        return ("fail", told(error), None)
    if isinstance(error, Retry):
        return ("retry", told(error), error.delay)
    if options.retry_on is not None and not isinstance(error, options.retry_on):
        return ("fail", told(error), None)
    return ("retry", told(error), None)


class Around:
    """What runs around every attempt: functions `(ctx)` that yield once."""

    def __init__(self, functions: list[Callable[..., Any]]) -> None:
        # In the order in which they were declared: the first is the outermost.
        self._all = [
            (asynccontextmanager(function) if inspect.isasyncgenfunction(function) else contextmanager(function))
            for function in functions
        ]
        self._is_async = [inspect.isasyncgenfunction(function) for function in functions]

    def call(self, registered: Registered, payload: str, context: Context) -> Any:
        """Call a plain function, inside of those that are plain generators."""
        with ExitStack() as stack:
            for enter, is_async in zip(self._all, self._is_async, strict=True):
                if not is_async:
                    stack.enter_context(enter(context))  # type: ignore[arg-type]
            arguments, named = registered.arguments(payload, context)
            return registered.function(*arguments, **named)
        # A generator took the exception.
        return None

    async def call_async(self, registered: Registered, payload: str, context: Context) -> Any:
        """Call a coroutine function, inside of all."""
        async with AsyncExitStack() as stack:
            for enter, is_async in zip(self._all, self._is_async, strict=True):
                if is_async:
                    await stack.enter_async_context(enter(context))  # type: ignore[arg-type]
                else:
                    stack.enter_context(enter(context))  # type: ignore[arg-type]
            arguments, named = registered.arguments(payload, context)
            return await registered.function(*arguments, **named)
        return None


def run_sync(registered: Registered, payload: str, context: Context) -> Outcome:
    """Make an attempt with a plain function, in this thread."""
    token = CURRENT.set(context)
    try:
        around = registered.around
        if around is None:
            arguments, named = registered.arguments(payload, context)
            returned = registered.function(*arguments, **named)
        else:
            returned = around.call(registered, payload, context)
        return ("succeed", _result(registered, returned), None)
    except BaseException as error:  # noqa: BLE001 -- whatever it was, the attempt has ended with it
        return outcome_of(registered, error, context)
    finally:
        CURRENT.reset(token)


async def run_async(registered: Registered, payload: str, context: Context) -> Outcome:
    """Make an attempt with a coroutine function, in this task. What stops the task or the process passes through."""
    # A task has a context of its own: what is set here is not seen elsewhere.
    CURRENT.set(context)
    try:
        around = registered.around
        if around is None:
            arguments, named = registered.arguments(payload, context)
            returned = await registered.function(*arguments, **named)
        else:
            returned = await around.call_async(registered, payload, context)
        return ("succeed", _result(registered, returned), None)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 -- whatever it was, the attempt has ended with it
        return outcome_of(registered, error, context)


def _result(registered: Registered, returned: Any) -> str:
    return "null" if returned is None else dumps(returned, path=f"result of {registered.name}")
