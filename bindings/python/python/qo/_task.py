"""Tasks: a function, its name and its options."""

from __future__ import annotations

import asyncio
import inspect
import json
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from ._codec import dumps, read
from ._context import Context
from ._errors import Invalid, from_json
from ._options import Backoff, Length, SubmitOptions, described, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Unpack

    from ._app import App
    from ._client import JobHandle

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class TaskOptions:
    """How a task is declared."""

    group: str | None = None
    max_concurrent: int | None = None
    max_concurrent_per_key: int | None = None
    timeout: Length | None = None
    backoff: Backoff | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    fail_on: tuple[type[BaseException], ...] = ()
    submit: SubmitOptions = field(default_factory=SubmitOptions)

    def described(self, name: str) -> dict[str, Any]:
        """As the store takes it."""
        return {
            "task": name,
            "group": self.group,
            "max_concurrent": self.max_concurrent,
            "timeout_ms": None if self.timeout is None else milliseconds("timeout", self.timeout),
            "retry": None if self.backoff is None else self.backoff.described(),
        }


class Registered:
    """A function that runs jobs: how it is called."""

    def __init__(self, name: str, function: Callable[..., Any], options: TaskOptions) -> None:
        self.name = name
        self.function = function
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)

    def arguments(self, payload: str, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments of a call from a payload."""
        raise NotImplementedError


class Plain(Registered):
    """A handler `(data, ctx)`, whose payload is the value itself."""

    def arguments(self, payload: str, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments of a call from a payload."""
        return [json.loads(payload), context], {}


class Named(Registered):
    """A handler whose payload is an object by parameter name. A first parameter `ctx` is the context."""

    def __init__(self, name: str, function: Callable[..., Any], options: TaskOptions) -> None:
        super().__init__(name, function, options)
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        try:
            self.hints = typing.get_type_hints(function)
        except NameError:
            # A name that only a type checker sees.
            self.hints = {}
        first = parameters[0] if parameters else None
        annotation = self.hints.get(first.name, first.annotation) if first else None
        self.takes_context = first is not None and (first.name == "ctx" or annotation in (Context, "qo.Context"))
        self.parameters = parameters[1:] if self.takes_context else parameters
        for parameter in self.parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                rule = "a task's parameters have names: no *args, **kwargs or /"
                raise Invalid.of(name, str(parameter), rule)
        self.signature = signature.replace(parameters=self.parameters)
        self.returns = self.hints.get("return", Any)

    def payload(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        """Write the arguments of a call as a payload."""
        bound = self.signature.bind(*arguments, **named)
        parts = [
            f"{json.dumps(name)}:{dumps(value, path=f'{self.name}({name})')}" for name, value in bound.arguments.items()
        ]
        return "{" + ",".join(parts) + "}"

    def arguments(self, payload: str, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments of a call from a payload."""
        given = json.loads(payload)
        if given is None:
            given = {}
        if not isinstance(given, dict):
            rule = f"must be an object with the parameters of {self.name}{self.signature}"
            raise Invalid.of("payload", given, rule)
        known = {parameter.name for parameter in self.parameters}
        strange = sorted(given.keys() - known)
        required = {parameter.name for parameter in self.parameters if parameter.default is parameter.empty}
        missing = sorted(required - given.keys())
        if strange or missing:
            what = [f"{name} is missing" for name in missing] + [f"there is no {name}" for name in strange]
            rule = f"must have the parameters of {self.name}{self.signature}: {', '.join(what)}"
            raise Invalid.of("payload", given, rule)
        named = {name: read(self.hints.get(name, Any), value, path=name) for name, value in given.items()}
        return ([context] if self.takes_context else []), named


class Task(Generic[P, R]):
    """A function that jobs run. Calling it calls the function itself; `submit` makes a job of the call."""

    def __init__(self, app: App, registered: Named, options: SubmitOptions | None = None) -> None:
        self._app = app
        self._registered = registered
        self._options: SubmitOptions = options or {}
        self.name = registered.name
        self.__doc__ = registered.function.__doc__
        self.__wrapped__ = registered.function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function, here and now."""
        return self._registered.function(*arguments, **named)

    def options(self, **options: Unpack[SubmitOptions]) -> Task[P, R]:
        """Return the same task with options for the jobs that are submitted by it."""
        return Task(self._app, self._registered, {**self._options, **options})

    def _described(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[dict[str, Any], SubmitOptions]:
        options: SubmitOptions = {**self._registered.options.submit, **self._options}
        return described(self.name, self._registered.payload(arguments, named), options), options

    async def submit(self, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Submit a job that calls the function with these arguments.

        Raises LimitReached if the group has no room and `on_limit` is `reject` or `skip`.
        """
        job, options = self._described(arguments, named)
        handles = await self._app.client.submit_described([job], [options], self._registered.returns)
        return _one(handles)

    def submit_sync(self, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Do what `submit` does, without asyncio."""
        job, options = self._described(arguments, named)
        return _one(self._app.client.submit_described_sync([job], [options], self._registered.returns))

    async def submit_many(self, calls: Iterable[dict[str, Any]]) -> list[JobHandle[R] | None]:
        """Submit many jobs at once, each with its arguments by name. None stands for one that was skipped."""
        pairs = [self._described((), call) for call in calls]
        jobs, options = [job for job, _ in pairs], [options for _, options in pairs]
        return await self._app.client.submit_described(jobs, options, self._registered.returns)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


def _one(handles: list[JobHandle[Any] | None]) -> JobHandle[Any]:
    handle = handles[0]
    if handle is None:
        raise from_json('{"kind": "limit_reached", "message": "skipped: its group has no room"}')
    return handle


def is_stop(error: BaseException) -> bool:
    """Whether an exception ends the process, whatever raised it."""
    return isinstance(error, (KeyboardInterrupt, GeneratorExit)) and not isinstance(error, asyncio.CancelledError)
