"""JSON as values, by annotation.

An annotation is compiled once, when a task is declared, into a `Form`: how to make a value of JSON, and a quick test
for values that need no closer look before they are submitted.
"""

# Annotations and values of JSON are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import dataclasses
import enum
import json
import threading
import types
import typing
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._codec import encode
from ._form import (
    ANY,
    MAKE,
    OBJECTS,
    SCALARS,
    Form,
    Mismatch,
    fields,
    fields_fit,
    fixed,
    from_text,
    keyed,
    literal,
    members,
    several,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Unsupported(Exception):
    """There is no way from JSON to an annotation."""


class Compiling:
    """Compiles annotations. A class, and an alias, is compiled once: it may contain itself."""

    def __init__(self) -> None:
        self._done: dict[Any, Form] = dict(SCALARS)
        # A form that is not ready is for the thread that compiles it.
        self._lock = threading.RLock()

    def form(self, annotation: Any) -> Form:
        """Compile an annotation. Raises Unsupported, or NameError for a name that is not there."""
        if typing.get_origin(annotation) is not None:
            # Not kept: `list[A | B]` equals `list[B | A]`, but the order decides which of them a value becomes.
            return self._compiled(annotation)
        try:
            with self._lock:
                return self._kept(annotation)
        except TypeError:
            # It has an argument that cannot be hashed.
            return self._compiled(annotation)

    def _kept(self, annotation: Any) -> Form:
        known = self._done.get(annotation)
        if known is None:
            # A class that refers to itself finds this.
            box: list[Form] = []

            def decode(value: Any) -> Any:
                return box[0].decode(value)

            def fits(value: Any) -> bool:
                return box[0].fits(value)

            self._done[annotation] = Form(decode, fits)
            try:
                known = self._compiled(annotation)
            except BaseException:
                # Classes that were compiled meanwhile may refer to this one, which has no form.
                while self._done.popitem()[0] is not annotation:
                    pass
                raise
            box.append(known)
            self._done[annotation] = known
        return known

    def _compiled(self, annotation: Any) -> Form:
        origin = typing.get_origin(annotation)
        if origin is not None:
            return self._generic(origin, annotation)
        if isinstance(annotation, typing.TypeVar):
            return self.form(annotation.__bound__ or Any)
        if hasattr(annotation, "__supertype__"):
            return self.form(annotation.__supertype__)
        if type(annotation).__name__ == "TypeAliasType":
            return self.form(annotation.__value__)
        if annotation in (typing.NoReturn, getattr(typing, "Never", None)):
            return SCALARS[None]
        if isinstance(annotation, str):
            raise Unsupported(f"{annotation!r} is not resolved")
        if isinstance(annotation, type):
            return self._class(annotation)
        raise Unsupported(_show(annotation))

    def _generic(self, origin: Any, annotation: Any) -> Form:
        arguments = typing.get_args(annotation)
        if origin in (typing.Union, types.UnionType):
            return union([self.form(argument) for argument in arguments], _show(annotation))
        if origin is typing.Literal:
            return _chosen(literal, arguments, annotation)
        if origin is typing.Annotated or _show(origin) in ("Required", "NotRequired", "ReadOnly", "Final"):
            return self.form(arguments[0])
        if type(origin).__name__ == "TypeAliasType":
            return self.form(origin)
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004
                return several(self.form(arguments[0]), tuple, (tuple,))
            return fixed([] if arguments == ((),) else [self.form(argument) for argument in arguments])
        if origin in MAKE:
            make, kinds = MAKE[origin]
            return several(self.form(arguments[0]), make, kinds)
        if origin in OBJECTS:
            return keyed(self.form(arguments[0]), self.form(arguments[1]))
        if isinstance(origin, type):
            # A generic class of a user's: what stands for its parameters is not looked at.
            return self._class(annotation) if hasattr(annotation, "__pydantic_validator__") else self.form(origin)
        raise Unsupported(_show(annotation))

    def _class(self, kind: Any) -> Form:
        if kind in MAKE or kind is tuple:
            make, kinds = MAKE.get(kind, (tuple, (tuple,)))
            return several(ANY, make, kinds)
        if kind in OBJECTS:
            return keyed(SCALARS[str], ANY)
        if issubclass(kind, enum.Enum):
            return _chosen(members, kind, kind)
        if hasattr(kind, "__pydantic_validator__"):
            return _pydantic(kind)
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind)
        if typing.is_typeddict(kind) or hasattr(kind, "__total__"):
            return self._typed_dict(kind)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._named_tuple(kind)
        if hasattr(kind, "__fspath__"):
            return from_text(type(kind()), kind, "a path")
        if issubclass(kind, (bytes, bytearray, memoryview)):
            raise Unsupported(f"{_show(kind)}: take base64 text, or the address of the bytes")
        raise Unsupported(_show(kind))

    def _dataclass(self, kind: Any) -> Form:
        hints = typing.get_type_hints(kind, include_extras=True)
        given = [field for field in dataclasses.fields(kind) if field.init]
        forms = {field.name: self.form(hints[field.name]) for field in given}
        missing = dataclasses.MISSING
        bare = [field for field in given if field.default is missing and field.default_factory is missing]
        named = fields(kind, ", ".join(forms), forms, frozenset(field.name for field in bare))

        def decode(value: Any) -> Any:
            arguments = named(value)
            try:
                return kind(**arguments)
            except (ValueError, TypeError) as error:
                raise Mismatch(f"must be {kind.__name__}: {error}", value) from error

        def fits(value: Any) -> bool:
            if not isinstance(value, (kind, Mapping)):
                return False
            if isinstance(value, Mapping):
                fields_fit(forms, value)
                return False
            items = {name: getattr(value, name) for name in forms if hasattr(value, name)}
            return fields_fit(forms, items) and type(value) is kind

        return Form(decode, fits)

    def _typed_dict(self, kind: Any) -> Form:
        hints = typing.get_type_hints(kind, include_extras=True)
        forms = {name: self.form(hint) for name, hint in hints.items()}
        named = fields(kind, ", ".join(forms), forms, kind.__required_keys__, is_open=True)

        def fits(value: Any) -> bool:
            if not isinstance(value, Mapping):
                return False
            return fields_fit(forms, value) and type(value) is dict and value.keys() == forms.keys()

        return Form(named, fits)

    def _named_tuple(self, kind: Any) -> Form:
        hints = typing.get_type_hints(kind, include_extras=True)
        forms = {name: self.form(hints.get(name, Any)) for name in kind._fields}
        required = frozenset(kind._fields) - frozenset(kind._field_defaults)
        named = fields(kind, ", ".join(forms), forms, required)

        def decode(value: Any) -> Any:
            if type(value) is list and len(value) <= len(kind._fields):
                value = dict(zip(kind._fields, value))  # noqa: B905 -- defaults stand for the rest
            return kind(**named(value))

        def fits(value: Any) -> bool:
            if not isinstance(value, (list, tuple, deque, Mapping)):
                return False
            items: Any = value if isinstance(value, Mapping) else dict(zip(forms, value))  # noqa: B905 -- defaults
            return fields_fit(forms, items) and type(value) is kind

        return Form(decode, fits)


def _chosen(make: Callable[[Any], Form], choices: Any, annotation: Any) -> Form:
    try:
        return make(choices)
    except (TypeError, ValueError) as error:
        raise Unsupported(f"{_show(annotation)}: {error}") from None


def _pydantic(kind: Any) -> Form:
    # JSON mode: a strict model takes a date as text there.
    if hasattr(kind, "model_validate_json"):
        read = kind.model_validate_json
        is_model = True
    else:
        read, is_model = _adapter(kind), False

    def decode(value: Any) -> Any:
        try:
            return read(encode(value))
        except ValueError as error:
            raise Mismatch(f"must be {kind.__name__}: {_first(error)}", value) from error

    def fits(value: Any) -> bool:
        if not isinstance(value, kind) or not is_model:
            return isinstance(value, kind)
        try:
            told = json.loads(encode(value))
        except (TypeError, ValueError, RecursionError):
            return False
        changed = _changed(value, decode(told))
        if changed is not None:
            rule = (
                "does not come back from JSON as it is: is it a secret, excluded, a subclass's, or made by a validator?"
            )
            raise Mismatch(rule, value, changed)
        return True

    return Form(decode, fits)


def _changed(value: Any, got: Any) -> str | None:
    """Return where a model differs from what came back of it; None if it does not."""
    if hasattr(value, "model_dump") and hasattr(type(value), "model_fields"):
        if not hasattr(got, "model_dump"):
            return ""
        # Private attributes and cached properties are no data.
        kind: Any = type(value)
        steps = [(f".{name}", getattr(value, name), getattr(got, name, _MISSING)) for name in kind.model_fields]
        extra: dict[str, Any] = value.model_extra or {}
        got_extra: dict[str, Any] = got.model_extra or {}
        steps += [(f".{name}", one, got_extra.get(name, _MISSING)) for name, one in extra.items()]
    elif isinstance(value, (list, tuple)) and isinstance(got, (list, tuple)) and len(value) == len(got):
        steps = [(f"[{index}]", one, other) for index, (one, other) in enumerate(zip(value, got, strict=True))]
    elif isinstance(value, dict) and isinstance(got, dict) and value.keys() == got.keys():
        steps = [(f".{name}", one, got[name]) for name, one in value.items()]
    else:
        try:
            return None if value == got else ""
        except Exception:  # noqa: BLE001 -- arrays, for one, cannot be compared so
            return None
    for step, one, other in steps:
        below = _changed(one, other)
        if below is not None:
            return step + below
    return None


_MISSING = object()


def _adapter(kind: Any) -> Callable[[str], Any]:
    import pydantic  # noqa: PLC0415 -- the class is one of pydantic's

    adapter: Any = pydantic.TypeAdapter(kind)
    read: Callable[[str], Any] = adapter.validate_json
    return read


def _first(error: ValueError) -> str:
    """Return what pydantic says of the first mistake, in a line."""
    told = getattr(error, "errors", None)
    if told is None:
        return str(error)
    first = told()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _show(annotation: Any) -> str:
    text = getattr(annotation, "__name__", None) or getattr(annotation, "_name", None)
    if typing.get_origin(annotation) is not None or not text:
        text = repr(annotation)
    return str(text).replace("typing.", "")
