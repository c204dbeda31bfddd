"""Values on their way through JSON and back, by annotation."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import pydantic
import pytest
import qo
from qo._codec import encode
from qo._registered import Named, Plain

UserId = NewType("UserId", int)
T = TypeVar("T")


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Day(enum.Enum):
    FIRST = date(2026, 1, 1)


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    id: UUID
    at: datetime
    size: Size
    lines: list[Line]
    note: str | None = None
    total: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


class Point(NamedTuple):
    x: int
    y: int = 0


class Address(TypedDict):
    street: str
    number: int


class Model(pydantic.BaseModel):
    when: datetime
    amount: Decimal
    kind: Size = Size.SMALL


class Strict(pydantic.BaseModel, strict=True):
    when: datetime
    tags: set[str]


class Renamed(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")


AT = datetime(2026, 11, 18, 12, 30, 5, 250, tzinfo=timezone.utc)
SOME_ID = UUID("01a1ee06-4b8c-71a7-9bb9-3f59cc886c27")


def named(annotation: Any) -> Named:
    def function(value): ...

    function.__annotations__ = {"value": annotation, "return": annotation}
    return Named("work", function)


def round_trip(annotation: Any, value: Any) -> Any:
    task = named(annotation)
    _, arguments = task.arguments(task.payload((value,), {}), None)
    assert task.result(json.loads(encode(value))) == arguments["value"]
    return arguments["value"]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 3),
        (float, 0.5),
        (str, "Zoë 🙂"),
        (bool, True),
        (None, None),
        (Any, {"a": [1, None, {"b": 2.5}]}),
        (object, [1, "a"]),
        (dict, {"a": 1}),
        (list, [1, "a"]),
        (list[int], [1, 2]),
        (Sequence[str], ["a"]),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (tuple[()], ()),
        (set[str], {"a", "b"}),
        (frozenset[int], frozenset({1, 2})),
        (deque[int], deque([1])),
        (dict[str, int], {"a": 1}),
        (dict[int, str], {1: "a"}),
        (dict[float, str], {1.5: "a"}),
        (dict[bool, str], {True: "a"}),
        (dict[UUID, int], {SOME_ID: 1}),
        (dict[date, list[Size]], {date(2026, 1, 2): [Size.SMALL]}),
        (Mapping[str, Decimal], {"a": Decimal("1.10")}),
        (int | None, None),
        (int | None, 3),
        (float | int, 3),
        (int | str, "a"),
        (list[int] | dict[str, int], {"a": 1}),
        (Literal["a", 1, Size.LARGE], Size.LARGE),
        (Annotated[int, "positive"], 3),
        (UserId, UserId(7)),
        (datetime, AT),
        (datetime, datetime(2026, 1, 1, 3, 4)),  # noqa: DTZ001
        (date, date(2026, 1, 2)),
        (time, time(12, 30)),
        (timedelta, timedelta(days=1, milliseconds=1)),
        (UUID, SOME_ID),
        (Decimal, Decimal("12345678901234567890.10")),
        (Path, Path("a/b.txt")),
        (Size, Size.LARGE),
        (Level, Level.HIGH),
        (Right, Right.READ | Right.WRITE),
        (Day, Day.FIRST),
        (Point, Point(1, 2)),
        (Address, {"street": "Main", "number": 1}),
        (Tree, Tree("root", [Tree("leaf")])),
        (Order, Order(SOME_ID, AT, Size.SMALL, [Line("a"), Line("b", 2)], "fast")),
        (list[Order | None], [Order(SOME_ID, AT, Size.SMALL, []), None]),
        (Model, Model(when=AT, amount=Decimal("1.50"))),
        (dict[str, Model], {"a": Model(when=AT, amount=Decimal(1))}),
        (Strict, Strict(when=AT, tags={"a"})),
        (Renamed, Renamed(userId=3)),
    ],
)
def test_a_value_comes_back_as_it_was(annotation, value):
    back = round_trip(annotation, value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value", "path", "rule"),
    [
        (int, "1", "work(value)", "must be int"),
        (int, True, "work(value)", "must be int"),
        (int, 1.5, "work(value)", "must be int"),
        (str, 1, "work(value)", "must be str"),
        (bool, 1, "work(value)", "must be bool"),
        (float, "1", "work(value)", "must be float"),
        (str, None, "work(value)", "must be str"),
        (list[int], [1, "a"], "work(value)[1]", "must be int"),
        (list[int], {"a": 1}, "work(value)", "must be a list"),
        (dict[str, list[int]], {"a": [1, None]}, "work(value).a[1]", "must be int"),
        (dict[int, str], {"one": "a"}, "work(value).one", "must have keys that are numbers"),
        (tuple[int, str], (1,), "work(value)", "must be a list of 2"),
        (int | None, "a", "work(value)", "must be int | None"),
        (Literal["a", "b"], "c", "work(value)", "must be one of 'a', 'b'"),
        (Size, "huge", "work(value)", "must be one of 'small', 'large'"),
        (datetime, "tomorrow", "work(value)", "must be a date and time, as in 2026-01-31T12:00:00+00:00"),
        (UUID, "7", "work(value)", "must be a UUID"),
        (Decimal, "much", "work(value)", "must be a decimal number, as text"),
        (Line, {"count": 1}, "work(value)", "must be Line: sku is missing"),
        (Line, {"sku": "a", "colour": 1}, "work(value)", "must be Line: there is no colour"),
        (Line, Line(3), "work(value).sku", "must be str"),
        (Order, {"id": "x", "at": "y", "size": "small", "lines": []}, "work(value).id", "must be a UUID"),
        (Tree, {"name": "a", "children": [{"name": 3}]}, "work(value).children[0].name", "must be str"),
        (Point, [1, 2, 3], "work(value)", "must be an object: x, y"),
        (Address, {"street": "Main"}, "work(value)", "must be Address: number is missing"),
        (Model, {"amount": "1"}, "work(value)", "must be Model: when: Field required"),
        (Any, object, "work(value)", "must be JSON: type is not JSON"),
        (Any, math.nan, "work(value)", "must be JSON: Out of range float values are not JSON compliant"),
        (Any, [math.inf], "work(value)", "must be JSON: Out of range float values are not JSON compliant"),
        (Any, b"a", "work(value)", "must be JSON: bytes is not JSON: send base64 text, or the address of the bytes"),
        (Any, {"a": {(1, 2): 3}}, "work(value)", "must be JSON: tuple is not JSON"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_the_submit(annotation, value, path, rule):
    with pytest.raises(qo.Invalid) as caught:
        named(annotation).payload((value,), {})
    assert caught.value.path == path
    assert caught.value.rule.startswith(rule)


def test_what_contains_itself_or_is_no_text_is_refused():
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (endless, deep, "\ud800"):
        with pytest.raises(qo.Invalid) as caught:
            named(Any).payload((value,), {})
        assert caught.value.path == "work(value)"


@pytest.mark.parametrize("annotation", [bytes, qo.Client, type, list[qo.Client], complex, Mapping[str, range]])
def test_an_annotation_that_json_cannot_become_is_refused_by_the_declaration(annotation):
    app = qo.App("memory:")

    async def work(value): ...

    work.__annotations__ = {"value": annotation}
    with pytest.raises(qo.Invalid, match=r"work\(value\).*JSON cannot become this"):
        app.task("work")(work)
    work.__annotations__ = {"return": annotation}
    with pytest.raises(qo.Invalid, match=r"JSON cannot become this"):
        app.task("work")(work)


def test_payloads_are_equal_texts_for_equal_sets():
    task = named(set[str])
    words = [f"word-{number}" for number in range(50)]
    backwards = sorted(words, reverse=True)
    assert task.payload((set(words),), {}) == task.payload((set(backwards),), {})
    assert encode({1, "a"}) == encode({"a", 1})


def test_a_default_of_none_allows_none():
    def function(number: int = None, text: str = ""): ...  # noqa: RUF013

    task = Named("work", function)
    assert task.payload((None,), {}) == '{"number":null}'
    with pytest.raises(qo.Invalid, match="must be str"):
        task.payload((1, None), {})
    assert task.arguments('{"number":null}', None) == ([], {"number": None})


def test_arguments_that_do_not_fit_the_function_are_a_type_error():
    def function(a: int, *, b: str = "x") -> None: ...

    task = Named("shop.work", function)
    assert task.payload((1,), {}) == '{"a":1}'
    assert task.payload((), {"b": "y", "a": 2}) == '{"b":"y","a":2}'
    for arguments, by_name, why in [
        ((), {}, "missing a required argument: 'a'"),
        ((1, "y"), {}, "too many positional arguments"),
        ((1,), {"a": 1}, "multiple values for argument 'a'"),
        ((1,), {"c": 1}, "got an unexpected keyword argument 'c'"),
    ]:
        with pytest.raises(TypeError, match=why) as caught:
            task.payload(arguments, by_name)
        assert str(caught.value).startswith("shop.work(a: 'int', *, b: 'str' = 'x') -> 'None': ")


def test_a_class_may_be_defined_after_the_task_that_names_it():
    app = qo.App("memory:")

    @app.task
    def work(value: Later) -> list[Later]:  # noqa: F821
        return [value]

    with pytest.raises(qo.Invalid, match=r"Later.*not defined.*not only for type checkers"):
        work.job(3)
    namespace = work.__wrapped__.__globals__
    namespace["Later"] = Line
    try:
        assert json.loads(work.job(Line("a")).description["payload"]) == {"value": {"sku": "a", "count": 1}}
    finally:
        del namespace["Later"]


def test_names_of_the_surrounding_function_are_known():
    @dataclasses.dataclass
    class Local:
        value: int

    app = qo.App("memory:")

    @app.task
    def work(value: Local) -> Local:
        return value

    with pytest.raises(qo.Invalid, match=r"work\(value\)\.value"):
        work.job(Local("a"))  # type: ignore[arg-type]


class Word(str, enum.Enum):
    HI = "hi"


@dataclasses.dataclass
class Tagged:
    tag: str | UUID


class TaggedDict(TypedDict):
    tag: str | UUID


class TaggedTuple(NamedTuple):
    tag: str | UUID


def _kept(annotation: Any, value: Any) -> Any:
    def work(value): ...

    work.__annotations__ = {"value": annotation}
    task = Named("work", work)
    return task.arguments(task.payload((value,), {}), None)[1]["value"]


def test_the_order_of_a_union_counts_each_time():
    text = AT.isoformat()
    assert _kept(str | datetime, text) == text
    assert _kept(datetime | str, AT) == AT
    assert _kept(list[str | datetime], [text]) == [text]
    assert _kept(list[datetime | str], [AT]) == [AT]


@pytest.mark.parametrize(
    ("annotation", "value", "rule"),
    [
        (str | datetime, AT, "comes back as str: put datetime first, or use one type"),
        (list[str | UUID], [SOME_ID], "comes back as str: put UUID first, or use one type"),
        (dict[int, str | UUID], {1: SOME_ID}, "comes back as str: put UUID first, or use one type"),
        (Size | str, "small", "comes back as Size: put str first, or use one type"),
        (list[int] | tuple[int, ...], (1,), "comes back as list: put tuple first, or use one type"),
        (list[str] | list[UUID], [SOME_ID], "or use one type"),
        (list[str] | list[Word], [Word.HI], "or use one type"),
        (list[list[int]] | list[tuple[int, ...]], [(1,)], "or use one type"),
        # In a container of another kind than annotated.
        (list[str | UUID], {SOME_ID}, "comes back as str: put UUID first, or use one type"),
        (list[str | UUID], deque(["text", SOME_ID]), "work(value)[1]"),
        (list[str | UUID], [Path("somewhere"), SOME_ID], "work(value)[1]"),
        (set[str | UUID], [SOME_ID], "comes back as str: put UUID first, or use one type"),
        (tuple[str | UUID, ...], [SOME_ID], "work(value)[0]"),
        (tuple[int, str | UUID], [1, SOME_ID], "work(value)[1]"),
        (dict[str, str | UUID], OrderedDict(a=SOME_ID), "work(value).a"),
        (Mapping[str, list[str | UUID]], {"a": (SOME_ID,)}, "work(value).a[0]"),
        (int | list[str | UUID], {SOME_ID}, "comes back as str: put UUID first, or use one type"),
        (list[str | UUID] | None, {SOME_ID}, "comes back as str: put UUID first, or use one type"),
        (Tagged, {"tag": SOME_ID}, "work(value).tag"),
        (TaggedDict, OrderedDict(tag=SOME_ID), "work(value).tag"),
        (TaggedTuple, [SOME_ID], "work(value).tag"),
        # Keys are text.
        (dict[int | str, int], {1: 1}, "has a key that comes back as '1'"),
        (dict[str | UUID, int], {SOME_ID: 1}, "comes back as str: put UUID first, or use one type"),
        (dict[str, int], {1: 1, "1": 2}, "has keys that are the same in JSON"),
    ],
)
def test_a_value_that_a_union_changes_is_refused(annotation, value, rule):
    with pytest.raises(qo.Invalid, match=r"^work\(value\)") as refused:
        _kept(annotation, value)
    assert rule in str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int | float, 3.0),
        (UUID | None, SOME_ID),
        (datetime | str, "text"),
        (list[int] | None, [1]),
        (Size | None, None),
        (int | list[int], [1]),
        (set[str | UUID] | list[UUID], {"text"}),
        (dict[str, UUID] | Tagged, {"a": SOME_ID}),
        (Tagged | dict[str, UUID], {"more": SOME_ID}),
        (dict[UUID | str, int], {SOME_ID: 1, "text": 2}),
        (dict[Size, int] | None, {Size.SMALL: 1}),
        (tuple[int, UUID | str], (1, "text")),
        (TaggedTuple, TaggedTuple("text")),
    ],
)
def test_a_value_that_a_union_keeps_is_taken(annotation, value):
    got = _kept(annotation, value)
    assert (type(got), got) == (type(value), value)


@pytest.mark.parametrize(
    ("annotation", "value", "where"),
    [
        (int | list[int], ["x"], "work(value)[0]"),
        (int | list[int], ("x",), "work(value)[0]"),
        (int | list[int], {"x"}, "work(value)[0]"),
        (int | dict[str, int], {"a": "x"}, "work(value).a"),
        (int | dict[str, list[int]], OrderedDict(a=("x",)), "work(value).a[0]"),
        (int | tuple[int, int], (1, "x"), "work(value)[1]"),
        (int | set[int], frozenset({"x"}), "work(value)[0]"),
        (int | Line, {"sku": 1}, "work(value).sku"),
        (int | list[int], "x", "work(value)"),
    ],
)
def test_an_item_that_fits_no_option_of_a_union_is_named(annotation, value, where):
    with pytest.raises(qo.Invalid) as refused:
        _kept(annotation, value)
    assert refused.value.path == where
    with pytest.raises(qo.Invalid) as refused:
        _received(annotation, encode({"value": value}))
    assert refused.value.path == where.removeprefix("work(").replace(")", "")


def _received(annotation: Any, payload: str) -> Any:
    def work(value): ...

    work.__annotations__ = {"value": annotation}
    return Named("work", work).arguments(payload, None)


class Secret(pydantic.BaseModel):
    token: pydantic.SecretStr


class Excluding(pydantic.BaseModel):
    kept: int = 0
    left_out: int = pydantic.Field(default=0, exclude=True)


class Holding(pydantic.BaseModel):
    items: list[Excluding]


class Larger(Excluding):
    more: int = 1


class Computing(pydantic.BaseModel, extra="forbid"):
    side: int
    _made: object = pydantic.PrivateAttr(default_factory=object)

    @pydantic.computed_field
    @property
    def area(self) -> int:
        return self.side**2


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (Secret, Secret(token=pydantic.SecretStr("x")), "work(value).token"),
        (Excluding, Excluding(left_out=1), "work(value).left_out"),
        (Excluding, Larger(), "work(value).more"),
        (Holding, Holding(items=[Excluding(left_out=1)]), "work(value).items[0].left_out"),
    ],
)
def test_a_model_that_does_not_come_back_as_it_is_is_refused(annotation, value, path):
    with pytest.raises(qo.Invalid, match="does not come back") as refused:
        _kept(annotation, value)
    assert refused.value.path == path


def test_a_model_with_computed_fields_comes_back():
    assert _kept(Computing, Computing(side=3)).area == 9


class Unhashable(enum.Enum):
    PAIR = (1, 2)
    OBJECT = {"a": 1}  # noqa: RUF012


class Equal(enum.Enum):
    TEXT = "2026-01-31"
    DATE = date(2026, 1, 31)


class Opaque(enum.Enum):
    THING = object()


@pytest.mark.parametrize("value", list(Unhashable))
def test_an_enum_may_have_values_that_cannot_be_hashed(value):
    assert _kept(Unhashable, value) is value


@pytest.mark.parametrize(("kind", "why"), [(Equal, "the same in JSON"), (Opaque, "object is not JSON")])
def test_an_enum_that_json_cannot_tell_apart_is_refused(kind, why):
    with pytest.raises(qo.Invalid, match=why):
        _kept(kind, next(iter(kind)))


@pytest.mark.parametrize(("annotation", "value"), [(float, 10**400), (timedelta, 1e300), (timedelta, 10**400)])
def test_a_number_that_is_too_large_is_a_mismatch(annotation, value):
    def work(value): ...

    work.__annotations__ = {"value": annotation}
    with pytest.raises(qo.Invalid, match="must be"):
        Named("work", work).arguments(json.dumps({"value": value}), None)


def test_a_timeout_that_no_store_can_hold_is_refused_by_its_name():
    app = qo.App("memory:")
    with pytest.raises(qo.Invalid, match=r"^timeout: 1e[+]300: must be at most"):
        app.task("work", timeout=1e300)(lambda: None)


def test_one_id_is_not_for_several_jobs():
    app = qo.App("memory:")

    @app.task("work")
    def work(value: int) -> None: ...

    with pytest.raises(qo.Invalid, match="is for one job"):
        work.options(id=str(SOME_ID)).submit_many_sync([{"value": 1}, {"value": 2}])
    assert work.options(id=str(SOME_ID)).submit_many_sync([{"value": 1}])[0].id == str(SOME_ID)


def test_the_context_is_passed_only_to_a_parameter_that_asks_for_it():
    def takes(function) -> bool:
        return len(Plain("work", function).arguments("1", None)[0]) == 2

    def annotated(data, second: qo.Context | None = None): ...

    assert all(map(takes, [lambda data, any_name: 0, lambda data, ctx=None: 0, lambda *all_: 0, annotated]))
    assert not any(map(takes, [lambda data: 0, lambda data, retries=3: 0]))
