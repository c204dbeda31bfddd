"""Handlers: functions that run jobs, and how a payload becomes the arguments of a call."""

from __future__ import annotations

import inspect
import json
import sys
import typing
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ._attempt import Around
from ._codec import Unfit, encode
from ._context import Context
from ._decode import Compiling, Unsupported
from ._errors import Invalid
from ._form import Form, Mismatch
from ._options import Backoff, Length, SubmitOptions, backoff, milliseconds, name, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Raised = type[BaseException] | tuple[type[BaseException], ...]
"""One class of exceptions, or several."""


def _classes(path: str, raised: Any) -> tuple[type[BaseException], ...]:
    several = isinstance(raised, (tuple, list, set, frozenset))
    classes = tuple(cast("Iterable[object]", raised)) if several else (raised,)
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, BaseException):
            raise Invalid.of(path, cast("object", one), "must be a class of exceptions, or a tuple of them")
    return cast("tuple[type[BaseException], ...]", classes)


@dataclass
class TaskOptions:
    """How a task is declared."""

    group: str | None = None
    max_concurrent: int | None = None
    max_concurrent_per_key: int | None = None
    timeout: Length | None = None
    backoff: Backoff | Length | None = None
    retry_on: Raised | None = None
    fail_on: Raised = ()
    submit: SubmitOptions = field(default_factory=SubmitOptions)
    """Options of jobs that are submitted without them."""

    def __post_init__(self) -> None:
        if self.group is not None:
            name("group", self.group)
        for limit in ("max_concurrent", "max_concurrent_per_key"):
            if getattr(self, limit) is not None:
                number(limit, getattr(self, limit))
        if self.retry_on is not None:
            self.retry_on = _classes("retry_on", self.retry_on)
        self.fail_on = _classes("fail_on", self.fail_on)
        self.described("any")

    def described(self, task: str) -> dict[str, Any]:
        """As the store takes it."""
        return {
            "task": task,
            "group": self.group,
            "max_concurrent": self.max_concurrent,
            "timeout_ms": None if self.timeout is None else milliseconds("timeout", self.timeout),
            "retry": None if self.backoff is None else backoff("backoff", self.backoff),
        }


class Registered:
    """A function that runs jobs: how it is called."""

    def __init__(self, name: str, function: Callable[..., Any], options: TaskOptions | None = None) -> None:
        self.name = name
        self.function = function
        self.options = options or TaskOptions()
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 -- an object with `async def __call__`
        )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise Invalid.of(name, function, "must be a function, async or not: one with yield does nothing by itself")
        self.middleware: list[Any] = []
        """What runs around each attempt. The app that it is added to gives it its own."""
        self._around: Around | None = None
        self._count = 0

    @property
    def around(self) -> Around | None:
        """What runs around each attempt; None if there is nothing."""
        if self._count != len(self.middleware):
            self._around, self._count = Around(self.middleware), len(self.middleware)
        return self._around

    def arguments(self, payload: str, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments of a call from a payload. Raises Unfit."""
        raise NotImplementedError

    def schedules(self) -> dict[str, dict[str, Any]]:
        """Return the schedules that it brings, by name, as the store takes them."""
        return {}

    def compile(self) -> None:
        """Get everything ready that can fail: a worker calls it before it takes jobs."""


class Plain(Registered):
    """A handler `(data, ctx)`, or `(data)`, whose payload is the value itself."""

    def __init__(self, name: str, function: Callable[..., Any], options: TaskOptions | None = None) -> None:
        super().__init__(name, function, options)
        try:
            signature = inspect.signature(function)
            signature.bind(None, None)
        except TypeError:
            self._takes_context = False
        except ValueError:
            # A function of C without a signature.
            self._takes_context = True
        else:
            second = list(signature.parameters.values())[1:2]
            self._takes_context = not second or _may_be_context(second[0])

    def arguments(self, payload: str, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments of a call from a payload."""
        data = json.loads(payload)
        return ([data, context] if self._takes_context else [data]), {}


def _may_be_context(parameter: inspect.Parameter) -> bool:
    """Whether the second parameter of a handler is its context. One with a default may be a setting of the handler."""
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        # `*args`, of a decorator that passes everything on.
        return True
    if parameter.default is parameter.empty or parameter.name == "ctx":
        return True
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return "Context" in annotation
    return annotation is Context or Context in typing.get_args(annotation)


_COMPILING = Compiling()


class Named(Registered):
    """A handler whose payload is an object by parameter name. A first parameter `ctx` is the context."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        options: TaskOptions | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, function, options)
        # Names of the place where the function stands, for annotations that are text.
        self._names = names or {}
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self._takes_context = bool(parameters) and self._is_context(parameters[0])
        self.parameters = parameters[1:] if self._takes_context else parameters
        for parameter in self.parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise Invalid.of(name, str(parameter), "a task's parameters have names: no *args, **kwargs or /")
            if self._is_context(parameter):
                raise Invalid.of(name, str(parameter), "the context must be the first parameter")
        self.signature = signature.replace(parameters=self.parameters)
        by_place = [parameter for parameter in self.parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        self._by_place = [parameter.name for parameter in by_place]
        self._known = {parameter.name for parameter in self.parameters}
        self._required = {one.name for one in self.parameters if one.default is one.empty}
        self._forms: dict[str, Form] | None = None
        self._returns: Form | None = None
        # A class may stand further down in the module: it is looked for again by the first submit or worker.
        with suppress(NameError):
            self._compile()

    def _is_context(self, parameter: inspect.Parameter) -> bool:
        annotation = parameter.annotation
        if annotation is parameter.empty:
            return parameter.name == "ctx"
        if isinstance(annotation, str):
            if "Context" not in annotation:
                return False
            try:
                annotation = _resolved(annotation, self.function, self._names)
            except NameError:
                # Imported for type checkers only.
                return parameter.name == "ctx"
        return annotation is Context

    def _compile(self) -> None:
        """Compile the annotations. NameError if one names something that is not there yet."""
        if self._forms is None:
            forms = {one.name: self._form(one.name, one.annotation, one.default) for one in self.parameters}
            self._returns = self._form("return", self.signature.return_annotation)
            self._forms, self._names = forms, {}

    def compile(self) -> None:
        """Compile the annotations."""
        try:
            self._compile()
        except NameError as error:
            rule = f"{error}: import it where the program runs, not only for type checkers"
            raise Invalid.of(self.name, str(self.signature), rule) from None

    def _form(self, parameter: str, annotation: Any, default: Any = ...) -> Form:
        path = f"{self.name}({parameter})" if parameter != "return" else f"{self.name}() -> …"
        try:
            resolved = _resolved(annotation, self.function, self._names)
            # `number: int = None` takes None as well, although a type checker frowns.
            return _COMPILING.form(resolved if default is not None else typing.Optional[resolved])  # noqa: UP045
        except Unsupported as error:
            rule = "JSON cannot become this: use JSON types, a dataclass, a pydantic model, a date, a UUID, an enum"
            raise Invalid.of(path, annotation, f"{rule} ({error})") from None

    def _compiled(self) -> dict[str, Form]:
        self.compile()
        forms = self._forms
        assert forms is not None, "it was compiled"  # noqa: S101
        return forms

    def bind(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Give the arguments of a call their names. TypeError if they do not fit the function."""
        bound = dict(zip(self._by_place, arguments))  # noqa: B905 -- too many are refused below
        count = len(bound) + len(named)
        bound.update(named)
        if (
            len(bound) != count
            or len(arguments) > len(self._by_place)
            or not self._required <= bound.keys() <= self._known
        ):
            try:
                self.signature.bind(*arguments, **named)
            except TypeError as error:
                raise TypeError(f"{self.name}{self.signature}: {error}") from None
        return bound

    def payload(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        """Write the arguments of a call as a payload. Raises TypeError or Invalid, which names the argument."""
        bound = self.bind(arguments, named)
        forms = self._forms if self._forms is not None else self._compiled()
        parameter = ""
        try:
            for parameter, value in bound.items():
                if not forms[parameter].fits(value):
                    self._look_closer(parameter, value, forms[parameter])
        except Mismatch as mismatch:
            raise Invalid.of(f"{self.name}({parameter}){mismatch.path}", mismatch.value, mismatch.rule) from None
        except RecursionError:
            raise Invalid.of(f"{self.name}({parameter})", "…", "must be JSON: it is nested too deep") from None
        try:
            return encode(bound)
        except (TypeError, ValueError, RecursionError):
            for parameter, value in bound.items():
                self._look_closer(parameter, value, forms[parameter])
            raise

    def _look_closer(self, parameter: str, value: Any, form: Form) -> None:
        """Check that a value fits after its way through JSON."""
        path = f"{self.name}({parameter})"
        try:
            form.decode(json.loads(encode(value)))
        except Mismatch as mismatch:
            raise Invalid.of(path + mismatch.path, mismatch.value, mismatch.rule) from None
        except RecursionError:
            raise Invalid.of(path, "…", "must be JSON: it is nested too deep") from None
        except (TypeError, ValueError) as error:
            raise Invalid.of(path, value, f"must be JSON: {error}") from None

    def arguments(self, payload: str, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments of a call from a payload. Raises Unfit."""
        read: Any = json.loads(payload)
        forms = self._forms if self._forms is not None else self._compiled()
        if type(read) is not dict and read is not None:
            rule = f"must be an object with the parameters of {self.name}{self.signature}"
            raise Unfit.of("payload", read, rule)
        given = cast("dict[str, Any]", read or {})
        if not self._required <= given.keys() <= self._known:
            missing, strange = sorted(self._required - given.keys()), sorted(given.keys() - self._known)
            what = [f"{one} is missing" for one in missing] + [f"there is no {one}" for one in strange]
            rule = f"must have the parameters of {self.name}{self.signature}: {', '.join(what)}"
            raise Unfit.of("payload", given, rule)
        parameter = ""
        try:
            for parameter, value in given.items():
                given[parameter] = forms[parameter].decode(value)
        except Mismatch as mismatch:
            raise Unfit.of(parameter + mismatch.path, mismatch.value, mismatch.rule) from None
        return ([context] if self._takes_context else []), given

    def result(self, value: Any) -> Any:
        """Make what the handler returned, by the return annotation, of JSON."""
        self._compiled()
        returns = self._returns
        assert returns is not None, "it was compiled"  # noqa: S101
        try:
            return returns.decode(value)
        except Mismatch as mismatch:
            raise Invalid.of(f"result of {self.name}{mismatch.path}", mismatch.value, mismatch.rule) from None


def _resolved(annotation: Any, function: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """Read an annotation that is text, or has text in it."""
    if annotation is inspect.Parameter.empty:
        return Any
    function = inspect.unwrap(function)
    around = getattr(function, "__globals__", {})

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    return typing.get_type_hints(holder, globalns=around, localns=dict(names), include_extras=True)["it"]


def default_name(function: Callable[..., Any]) -> str:
    """Name a task after its function: the module's name and its own.

    A program that is run by its path has the name of its file, so that `python jobs.py` and `qo worker jobs:app` agree.
    """
    module = getattr(function, "__module__", None) or "?"
    qualified = getattr(function, "__qualname__", "?").replace("<locals>.", "")
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name.removesuffix(".__main__")
        elif file is not None:
            module = file.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    try:
        return name("task", f"{module}.{qualified}")
    except Invalid:
        rule = 'is no name of a task: give it one, as in @app.task("resize")'
        raise Invalid.of("task", f"{module}.{qualified}", rule) from None
