"""Values as JSON and back, by annotation."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from ._errors import Invalid

SCALARS: dict[Any, Any] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
    timedelta: lambda value: timedelta(seconds=value),
}


def _plain(value: object) -> object:
    """Turn what json does not know into something that it does."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


def dumps(value: object, *, path: str) -> str:
    """Write a value as JSON. `path` names it in an error."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid.of(path, value, f"must be JSON: {error}") from None


def _read_union(annotation: Any, value: Any, path: str) -> Any:
    options = typing.get_args(annotation)
    if value is None and type(None) in options:
        return None
    for option in options:
        if option is type(None):
            continue
        try:
            return read(option, value, path=path)
        except Invalid:
            continue
    raise Invalid.of(path, value, f"must be a {annotation}")


def _read_generic(origin: Any, annotation: Any, value: Any, path: str) -> Any:
    arguments = typing.get_args(annotation)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise Invalid.of(path, value, f"must be one of {', '.join(map(repr, arguments))}")
    if origin is typing.Annotated:
        return read(arguments[0], value, path=path)
    if origin in (list, Sequence, Iterable, set, frozenset):
        make = origin if origin in (set, frozenset) else list
        return make(read(arguments[0], item, path=f"{path}[{index}]") for index, item in enumerate(value))
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004
            return tuple(read(arguments[0], item, path=f"{path}[{index}]") for index, item in enumerate(value))
        return tuple(
            read(argument, item, path=f"{path}[{index}]")
            for index, (argument, item) in enumerate(zip(arguments, value, strict=True))
        )
    if origin in (dict, Mapping):
        return {
            read(arguments[0], key, path=path): read(arguments[1], item, path=f"{path}.{key}")
            for key, item in value.items()
        }
    return value


def _read_class(annotation: Any, value: Any, path: str) -> Any:
    if annotation in SCALARS:
        return SCALARS[annotation](value)
    if hasattr(annotation, "model_validate"):
        return annotation.model_validate(value)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return annotation(value)
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        fields = {name: read(hints.get(name, Any), item, path=f"{path}.{name}") for name, item in value.items()}
        return annotation(**fields)  # type: ignore[operator]
    if annotation in (int, float, str, bool) and not _is_a(annotation, value):
        raise Invalid.of(path, value, f"must be {annotation.__name__}")
    return value


def read(annotation: Any, value: Any, *, path: str) -> Any:
    """Make a value of JSON into what an annotation says. Annotations that it does not know leave it as it is."""
    if annotation is Any or isinstance(annotation, (str, typing.TypeVar)):
        return value
    origin = typing.get_origin(annotation)
    try:
        if origin in (typing.Union, types.UnionType):
            return _read_union(annotation, value, path)
        if origin is not None:
            return _read_generic(origin, annotation, value, path)
        return _read_class(annotation, value, path)
    except Invalid:
        raise
    except Exception as error:
        raise Invalid.of(path, value, str(error) or type(error).__name__) from error


def _is_a(annotation: type, value: object) -> bool:
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation)
