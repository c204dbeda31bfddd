"""Values as JSON.

Plain JSON values are one call of the `json` module. Others are turned into plain ones on the way: dataclasses, pydantic
models, dates, UUIDs, decimals, enums, sets and paths. `_decode` turns them back, by annotation.
"""

# Values are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import os
from collections import deque
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from ._errors import Invalid


class Unfit(Invalid):
    """A payload does not fit its handler, or a result is no JSON: another attempt would end the same way."""


def _sorted(values: Any) -> list[Any]:
    """Put the items of a set into an order that is the same in every process: equal payloads are equal texts."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=_ENCODE)


def plain(value: Any) -> Any:  # noqa: C901
    """Turn a value that json does not know into one that it knows, at its outermost level."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (set, frozenset)):
        return _sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, deque):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{type(value).__name__} is not JSON: send base64 text, or the address of the bytes")
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("a coroutine is not JSON: await it, or make the function that returns it `async def`")
    raise TypeError(f"{_shown(type(value))} is not JSON")


def _shown(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


_ENCODE = json.JSONEncoder(default=plain, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode


def _with_text_keys(value: Any) -> Any:
    """Turn a value into plain JSON as a whole, with keys that json does not take as text."""
    if isinstance(value, Mapping):
        return {_key(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return _with_text_keys(plain(value))


def _key(key: Any) -> Any:
    if key is None or isinstance(key, (str, int, float, bool)):
        return key
    return _key(plain(key))


def encode(value: Any) -> str:
    """Write a value as JSON. TypeError, ValueError or RecursionError if it is none.

    >>> encode({"at": date(2026, 1, 2), "sizes": {3, 1}})
    '{"at":"2026-01-02","sizes":[1,3]}'
    """
    try:
        text = _ENCODE(value)
    except TypeError as error:
        if not str(error).startswith("keys must be"):
            raise
        text = _ENCODE(_with_text_keys(value))
    if not text.isascii():
        # A lone surrogate is in no UTF-8.
        text.encode()
    return text


def unicode(text: str) -> str:
    """Write what is in no UTF-8 (lone surrogates, as in names of files) as escapes: the extension takes UTF-8 only.

    >>> len(unicode("a" + chr(0xDC80)))
    7
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def dumps(value: Any, *, path: str) -> str:
    """Write a value as JSON. `path` names it in an error."""
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unfit.of(path, value, f"must be JSON: {_why(error)}") from None


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeError):
        return "it has text that is not Unicode"
    return str(error)
