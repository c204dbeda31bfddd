"""Forms: what an annotation asks of a value, for values that are no classes of users."""

# Values of JSON are of any type.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections import abc, deque
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ._codec import encode

if TYPE_CHECKING:
    from collections.abc import Callable


class Mismatch(Exception):
    """A value does not fit an annotation."""

    def __init__(self, rule: str, value: Any, path: str = "") -> None:
        super().__init__(rule)
        self.rule = rule
        self.value = value
        self.path = path

    def under(self, step: str) -> Mismatch:
        """Say where the value stands in a larger one."""
        self.path = step + self.path
        return self


class Form(NamedTuple):
    """What an annotation asks of a value."""

    decode: Callable[[Any], Any]
    """Make a value of JSON. Raises Mismatch."""
    fits: Callable[[Any], bool]
    """Whether a value surely fits before it is JSON. False asks for a closer look.

    It looks at every item, also in a container of another kind than annotated. Raises Mismatch if a union would change
    an item on its way through JSON.
    """
    is_any: bool = False
    """Whether it takes every value as it is."""


def _as_it_is(value: Any) -> Any:
    return value


ANY = Form(_as_it_is, lambda _: True, is_any=True)


def _scalar(kind: type, shown: str) -> Form:
    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise Mismatch(f"must be {shown}", value)
        return value

    return Form(decode, lambda value: type(value) is kind)


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise Mismatch("must be int", value)


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Mismatch("must be float: it is too large", value) from None
    raise Mismatch("must be float", value)


def from_text(kind: type, read: Callable[[str], Any], shown: str) -> Form:
    """Return the form of a value that is written as text."""

    def decode(value: Any) -> Any:
        if type(value) is not str:
            raise Mismatch(f"must be {shown}", value)
        try:
            return read(value)
        except (ValueError, ArithmeticError):
            raise Mismatch(f"must be {shown}", value) from None

    return Form(decode, lambda value: type(value) is kind)


def _datetime(text: str) -> datetime:
    if sys.version_info < (3, 11) and text.endswith(("Z", "z")):
        text = f"{text[:-1]}+00:00"
    return datetime.fromisoformat(text)


def _decimal(value: Any) -> Decimal:
    if type(value) is str or type(value) is int or type(value) is float:
        try:
            return Decimal(str(value))
        except ArithmeticError:
            pass
    raise Mismatch("must be a decimal number, as text", value)


def _timedelta(value: Any) -> timedelta:
    try:
        return timedelta(seconds=_float(value))
    except (OverflowError, ValueError):
        raise Mismatch("must be seconds that a timedelta can hold", value) from None


SCALARS: dict[Any, Form] = {
    Any: ANY,
    object: ANY,
    str: _scalar(str, "str"),
    bool: _scalar(bool, "bool"),
    None: _scalar(type(None), "None"),
    type(None): _scalar(type(None), "None"),
    int: Form(_int, lambda value: type(value) is int),
    float: Form(_float, lambda value: type(value) is float or type(value) is int),
    datetime: from_text(datetime, _datetime, "a date and time, as in 2026-01-31T12:00:00+00:00"),
    date: from_text(date, date.fromisoformat, "a date, as in 2026-01-31"),
    time: from_text(time, time.fromisoformat, "a time, as in 12:30:00"),
    UUID: from_text(UUID, UUID, "a UUID"),
    Decimal: Form(_decimal, lambda value: type(value) is Decimal and value.is_finite()),
    timedelta: Form(_timedelta, lambda value: type(value) is timedelta),
}


def several(item: Form, make: Callable[[Any], Any], kinds: tuple[type, ...]) -> Form:
    """Return the form of a list, or of what is made of one."""
    decode_item, fits_item = item.decode, item.fits

    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise Mismatch("must be a list", value)
        if item.is_any:
            return make(value)
        try:
            return make([decode_item(one) for one in value])
        except Mismatch:
            for index, one in enumerate(value):
                _at(decode_item, one, f"[{index}]")
            raise
        except TypeError:
            raise Mismatch("must have items that can be in a set", value) from None

    def fits(value: Any) -> bool:
        is_kind = type(value) in kinds
        return (is_kind or isinstance(value, _CONTAINERS)) and (item.is_any or all_fit(fits_item, value)) and is_kind

    return Form(decode, fits)


def all_fit(fits: Callable[[Any], bool], items: Any) -> bool:
    """Whether all items surely fit. Looks at all of them, also after one that does not: a later one may raise."""
    try:
        return all([*map(fits, items)])
    except Mismatch:
        if isinstance(items, (set, frozenset)):
            raise
        for index, one in enumerate(items):
            _at(fits, one, f"[{index}]")
        raise


def all_fit_by_name(item: Form, items: abc.Mapping[Any, Any]) -> bool:
    """Whether all values of an object surely fit. Looks at all of them."""
    fit = [_at(item.fits, one, f".{name}") for name, one in items.items()]
    return all(fit)


def fields_fit(forms: dict[str, Form], items: abc.Mapping[str, Any]) -> bool:
    """Whether the items surely fit the fields of their names. Looks at all of them."""
    fit = [_at(form.fits, items[name], f".{name}") for name, form in forms.items() if name in items]
    return all(fit)


def _at(decode: Callable[[Any], Any], value: Any, step: str) -> Any:
    try:
        return decode(value)
    except Mismatch as mismatch:
        raise mismatch.under(step) from None


def _key(key: Form) -> Callable[[str], Any]:
    """Return how a key is made. The keys of JSON are text, whatever they were."""
    decode = key.decode
    if key is SCALARS[bool]:
        return lambda text: decode({"true": True, "false": False}.get(text))
    if key is not SCALARS[int] and key is not SCALARS[float]:
        return decode

    def number(text: str) -> Any:
        try:
            return decode(json.loads(text))
        except ValueError:
            raise Mismatch("must have keys that are numbers", text) from None

    return number


def keyed(key: Form, item: Form) -> Form:
    """Return the form of an object with any keys."""
    decode_key, decode_item = _key(key), item.decode
    is_plain = key is SCALARS[str] or key.is_any

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise Mismatch("must be an object", value)
        if is_plain:
            if item.is_any:
                return value
            return {name: _at(decode_item, one, f".{name}") for name, one in value.items()}
        return {_at(decode_key, name, f".{name}"): _at(decode_item, one, f".{name}") for name, one in value.items()}

    def fits(value: Any) -> bool:
        if not isinstance(value, abc.Mapping):
            return False
        are_fit = item.is_any or all_fit_by_name(item, value)
        if is_plain and all(type(name) is str for name in value):
            return are_fit and type(value) is dict
        return _keys_fit(value, key, decode_key) and are_fit and type(value) is dict

    return Form(decode, fits)


def _keys_fit(value: Any, key: Form, decode: Callable[[str], Any]) -> bool:
    """Whether the keys of an object surely fit. Mismatch if one would get lost or would come back as another."""
    try:
        told = json.loads(encode(dict.fromkeys(value)))
    except (TypeError, ValueError, RecursionError):
        return False
    if len(told) != len(value):
        raise Mismatch("has keys that are the same in JSON, as 1 and '1' are", value)
    are_fit = True
    for one, text in zip(value, told, strict=True):
        if not key.fits(one):
            are_fit = False
        elif not is_same(got := decode(text), one):
            raise Mismatch(f"has a key that comes back as {got!r}: the keys of JSON are text", one)
    return are_fit


def fixed(items: list[Form]) -> Form:
    """Return the form of a tuple of so many items."""

    def decode(value: Any) -> Any:
        if type(value) is not list or len(value) != len(items):
            raise Mismatch(f"must be a list of {len(items)}", value)
        return tuple(_at(item.decode, one, f"[{index}]") for index, (item, one) in enumerate(zip(items, value)))  # noqa: B905

    def fits(value: Any) -> bool:
        if not isinstance(value, (list, tuple, deque)) or len(value) != len(items):
            return False
        are_fit = [_at(item.fits, one, f"[{index}]") for index, (item, one) in enumerate(zip(items, value))]  # noqa: B905
        return all(are_fit) and type(value) is tuple

    return Form(decode, fits)


def union(options: list[Form], shown: str) -> Form:
    """Return the form of a union: the first option that takes the value. `float | int` leaves an int an int."""
    options = sorted(options, key=lambda option: option is SCALARS[float])
    has_float = SCALARS[float] in options
    surely, alone = _surely_kept(options), _alone(options)

    def decode(value: Any) -> Any:
        if has_float and type(value) is float:
            return value
        closest: Mismatch | None = None
        for option in options:
            try:
                return option.decode(value)
            except Mismatch as mismatch:  # noqa: PERF203
                if mismatch.path and closest is None:
                    closest = mismatch
        raise closest or Mismatch(f"must be {shown}", value)

    def fits(value: Any) -> bool:
        kind = type(value)
        if kind in surely:
            return True
        if alone is not None:
            return value is None or alone.fits(value)
        # A container may have items of another kind than annotated, which come back changed.
        if not isinstance(value, (*_CONTAINERS, abc.Mapping)) and options[0].fits(value):
            return True
        return _is_kept(value, options)

    return Form(decode, fits)


def _alone(options: list[Form]) -> Form | None:
    """Return the only option beside None, if there is only one: none beside it takes its values."""
    others = [option for option in options if option is not SCALARS[None] and option is not SCALARS[type(None)]]
    return others[0] if len(others) == 1 else None


def _surely_kept(options: list[Form]) -> frozenset[type]:
    """Return the types whose values come back as they are: no option before theirs takes them."""
    kept: set[type] = set()
    for option in options:
        kind = next((kind for kind in (str, bool, int, float, type(None)) if option is SCALARS[kind]), None)
        if kind is None:
            break
        kept.add(kind)
    if SCALARS[type(None)] in options or SCALARS[None] in options:
        kept.add(type(None))
    if SCALARS[float] in options:
        kept.add(float)
    return frozenset(kept)


def _is_kept(value: Any, options: list[Form]) -> bool:
    """Whether a value comes back as it is. Mismatch if one option would keep it, but another one takes it before."""
    try:
        told = json.loads(encode(value))
    except (TypeError, ValueError, RecursionError):
        return False
    taken: list[tuple[Form, Any]] = []
    for option in options:
        with suppress(Mismatch):
            taken.append((option, option.decode(told)))
    if not taken:
        return False
    first, got = taken[0]
    if is_same(got, value):
        return True
    if any(is_same(kept, value) for _, kept in taken[1:]):
        is_kind = type(got) is type(value)
        as_what, which = (repr(got), "its type") if is_kind else (type(got).__name__, type(value).__name__)
        raise Mismatch(f"comes back as {as_what}: put {which} first, or use one type", value)
    # Not as it is, but this option takes it. A union in it may change an item.
    return first.fits(value)


def is_same(got: Any, value: Any) -> bool:
    """Whether a value came back as it was: equal, and of the same types at every depth."""
    if type(got) is not type(value):
        return False
    if isinstance(value, (list, tuple, deque)):
        return len(got) == len(value) and all(map(is_same, got, value))
    if isinstance(value, dict):
        return got.keys() == value.keys() and all(is_same(got[name], one) for name, one in value.items())
    if isinstance(value, (set, frozenset)):
        return {(type(one), one) for one in got} == {(type(one), one) for one in value}
    if dataclasses.is_dataclass(value):
        of = [field.name for field in dataclasses.fields(value) if field.init]
        return all(is_same(getattr(got, name, None), getattr(value, name, None)) for name in of)
    return bool(got == value)


def literal(choices: tuple[Any, ...]) -> Form:
    """Return the form of one of several values. TypeError or ValueError if JSON does not tell them apart."""
    table: dict[Any, Any] = {}
    for choice in choices:
        other = table.setdefault(_hashable(_told(choice)), choice)
        if other is not choice and (type(other), other) != (type(choice), choice):
            raise ValueError(f"{other!r} and {choice!r} are the same in JSON")
    shown = ", ".join(repr(_told(choice)) for choice in choices)

    def decode(value: Any) -> Any:
        try:
            return table[_hashable(value)]
        except KeyError:
            raise Mismatch(f"must be one of {shown}", value) from None

    return Form(decode, lambda value: any(type(value) is type(choice) and value == choice for choice in choices))


def _hashable(told: Any) -> Any:
    """Return what tells values of JSON apart: 1, 1.0 and true are not the same."""
    return (type(told), json.dumps(told, sort_keys=True) if isinstance(told, (list, dict)) else told)


def _told(choice: Any) -> Any:
    """Return a member of an enum as it is in JSON."""
    return json.loads(encode(choice))


def members(kind: type[enum.Enum]) -> Form:
    """Return the form of an enum."""
    if issubclass(kind, enum.Flag):
        decode_flag = kind

        def decode(value: Any) -> Any:
            try:
                return decode_flag(value)
            except (ValueError, TypeError):
                raise Mismatch(f"must be {kind.__name__}", value) from None

        return Form(decode, lambda value: isinstance(value, kind))
    return Form(literal(tuple(kind)).decode, lambda value: isinstance(value, kind))


def fields(kind: Any, shown: str, forms: dict[str, Form], required: frozenset[str], *, is_open: bool = False) -> Any:
    """Return how the fields of an object are made."""
    unfit = [name for name, form in forms.items() if not form.is_any]

    def decode(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise Mismatch(f"must be an object: {shown}", value)
        if not required <= value.keys():
            missing = ", ".join(sorted(required - value.keys()))
            raise Mismatch(f"must be {kind.__name__}: {missing} is missing", value)
        if not is_open and not value.keys() <= forms.keys():
            strange = ", ".join(sorted(value.keys() - forms.keys()))
            raise Mismatch(f"must be {kind.__name__}: there is no {strange}", value)
        made = dict(value)
        for name in unfit:
            if name in made:
                made[name] = _at(forms[name].decode, made[name], f".{name}")
        return made

    return decode


_CONTAINERS = (list, tuple, set, frozenset, deque)
_LIST: tuple[Callable[[Any], Any], tuple[type, ...]] = (list, (list, tuple))
_SET: tuple[Callable[[Any], Any], tuple[type, ...]] = (set, (set, frozenset))
MAKE: dict[Any, tuple[Callable[[Any], Any], tuple[type, ...]]] = {
    list: (_as_it_is, (list, tuple)),
    abc.Sequence: _LIST,
    abc.MutableSequence: _LIST,
    abc.Iterable: _LIST,
    abc.Collection: _LIST,
    deque: (deque, (deque,)),
    set: _SET,
    abc.Set: _SET,
    abc.MutableSet: _SET,
    frozenset: (frozenset, (set, frozenset)),
}
OBJECTS = (dict, abc.Mapping, abc.MutableMapping)
