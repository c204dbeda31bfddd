"""Calls of a store, written once for asyncio and for threads.

1. A method that talks to a store is a generator. It yields a question and gets the answer back.
2. `call` marks it. A class that inherits `Async` gets the method as a coroutine function, one that inherits `Sync` as a
   plain function that waits.

To a type checker the mark is a descriptor, whose type depends on the class. At run time each class has real methods.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from ._errors import from_json

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._qo import Pending

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


class Question(NamedTuple):
    """A call that was made, and for how many seconds to wait for its answer."""

    pending: Pending
    seconds: float | None = None


Steps = Generator[Question, Any, T]
"""What a method that talks to a store does: it yields questions, and returns a `T`."""


def _read(answer: tuple[bool, str]) -> Any:
    is_good, text = answer
    if not is_good:
        raise from_json(text)
    return json.loads(text)


async def answer(pending: Pending, seconds: float | None = None) -> Any:
    """Wait for an answer in an event loop, any event loop. Raises TimeoutError if it takes longer than `seconds`."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bool] = loop.create_future()

    def told(is_answered: bool = True) -> None:  # noqa: FBT001, FBT002
        if not done.done():
            done.set_result(is_answered)

    pending.when_done(loop.call_soon_threadsafe, told)
    timer = None if seconds is None else loop.call_later(max(seconds, 0.0), told, False)  # noqa: FBT003
    try:
        await done
    except asyncio.CancelledError:
        pending.abort()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    found = pending.answer()
    if found is None:
        pending.abort()
        raise TimeoutError(f"no answer within {seconds} s")
    return _read(found)


def refuse_in_loop() -> None:
    """Raise if this thread runs an event loop, which a call that waits would stop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("this thread runs an event loop, which a call of qo.sync would stop: await the same call of qo")


def answer_sync(pending: Pending, seconds: float | None = None) -> Any:
    """Wait for an answer in this thread, which must not run an event loop."""
    try:
        refuse_in_loop()
        return _read(pending.wait(seconds))
    except BaseException:
        pending.abort()
        raise


async def drive(steps: Steps[T]) -> T:
    """Take the steps of a call in an event loop."""
    try:
        question = next(steps)
        while True:
            try:
                told = await answer(*question)
            except BaseException as error:  # noqa: BLE001, PERF203 -- the generator decides
                question = steps.throw(error)
            else:
                question = steps.send(told)
    except StopIteration as stop:
        result: T = stop.value
        return result


def drive_sync(steps: Steps[T]) -> T:
    """Take the steps of a call in this thread."""
    refuse_in_loop()
    try:
        question = next(steps)
        while True:
            try:
                told = answer_sync(*question)
            except BaseException as error:  # noqa: BLE001, PERF203 -- the generator decides
                question = steps.throw(error)
            else:
                question = steps.send(told)
    except StopIteration as stop:
        result: T = stop.value
        return result


class Async:
    """Base of classes whose calls are coroutines."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, marked in _marked(cls):
            setattr(cls, name, marked.as_coroutine(cls))


class Sync:
    """Base of classes whose calls wait."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, marked in _marked(cls):
            setattr(cls, name, marked.as_function(cls))


class call(Generic[S, P, T]):  # noqa: N801 -- a decorator
    """Marks a generator as a method that talks to a store."""

    def __init__(self, function: Callable[Concatenate[S, P], Steps[T]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        # What the methods return: `Steps[int]` becomes `int`.
        returned: str = function.__annotations__["return"]
        function.__annotations__["return"] = returned.removeprefix("Steps[").removesuffix("]")

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, instance: Async, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, instance: Sync, owner: Any) -> Callable[P, T]: ...
    def __get__(self, instance: object, owner: Any) -> Any:
        """Tell a type checker what the method is. Classes with calls have real methods instead."""
        return self

    def as_coroutine(self, owner: type) -> Callable[..., Any]:
        """Make the method of a class with asyncio."""
        function: Callable[..., Steps[T]] = self._function

        @functools.wraps(function)
        async def method(*arguments: Any, **named: Any) -> T:
            return await drive(function(*arguments, **named))

        method.__qualname__ = f"{owner.__qualname__}.{function.__name__}"
        return method

    def as_function(self, owner: type) -> Callable[..., Any]:
        """Make the method of a class without asyncio."""
        function: Callable[..., Steps[T]] = self._function

        @functools.wraps(function)
        def method(*arguments: Any, **named: Any) -> T:
            return drive_sync(function(*arguments, **named))

        method.__qualname__ = f"{owner.__qualname__}.{function.__name__}"
        return method


def _marked(cls: type) -> list[tuple[str, call[Any, Any, Any]]]:
    """Return the calls that a class inherits and does not have as methods yet."""
    names = {name for base in cls.__mro__ for name in vars(base)}
    found = {name: next(vars(base)[name] for base in cls.__mro__ if name in vars(base)) for name in names}
    return [(name, value) for name, value in found.items() if isinstance(value, call)]
