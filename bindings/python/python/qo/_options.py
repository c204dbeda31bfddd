"""The options of jobs, tasks and workers, as a caller writes them and as the store takes them."""

from __future__ import annotations

import os
import re
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast
from uuid import UUID

from ._errors import Invalid, UnknownOption, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Length = float | timedelta
"""A length of time: seconds, or a timedelta."""
OnLimit = Literal["wait", "reject", "skip"]
OnFailure = Literal["halt", "continue"]

_MOST = 1_000_000
_KEY_BYTES = 256
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_I32 = 1 << 31


def milliseconds(path: str, length: object) -> int:
    """Read a length of time: seconds, or a timedelta."""
    return round(seconds(path, length) * 1000)


def moment(path: str, value: object) -> int:
    """Read a date with a time zone, as milliseconds since 1970."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Invalid.of(path, value, "must be a datetime with a time zone, as in datetime.now(timezone.utc)")
    return round(value.timestamp() * 1000)


def number(path: str, value: object, least: int = 0, most: int = _MOST) -> int:
    """Read a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid.of(path, value, f"must be a whole number from {least} to {most}")
    return value


def text(path: str, value: object) -> str:
    """Read a text."""
    if not isinstance(value, str):
        raise Invalid.of(path, value, "must be a str")
    return value


def key(path: str, value: object) -> str:
    """Read a key."""
    given = text(path, value)
    if not 1 <= len(given.encode(errors="replace")) <= _KEY_BYTES:
        raise Invalid.of(path, value, f"must be 1 to {_KEY_BYTES} bytes")
    if not given.isprintable() and any(unicodedata.category(character) in ("Cc", "Cs") for character in given):
        raise Invalid.of(path, value, "must not contain control characters")
    if given == "*":
        raise Invalid.of(path, value, "stands for every key and cannot be one")
    return given


def group(path: str, value: object) -> str:
    """Read a group, with or without a key."""
    of, slash, divided = text(path, value).partition("/")
    name(path, of)
    if slash:
        key(path, divided)
    return text(path, value)


def name(path: str, value: object) -> str:
    """Read the name of a task, queue, group, workflow, schedule or app."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Invalid.of(path, value, "must match [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
    if value == "cluster":
        raise Invalid.of(path, value, "is the group of all jobs; choose another name")
    return value


def truth(path: str, value: object) -> bool:
    """Read True or False."""
    if not isinstance(value, bool):
        raise Invalid.of(path, value, "must be True or False")
    return value


def one_of(path: str, value: object, choices: Collection[str]) -> str:
    """Read a word."""
    if not isinstance(value, str) or value not in choices:
        raise Invalid.of(path, value, f"must be one of {', '.join(map(repr, choices))}")
    return value


def unknown(path: str, what: str, option: str, known: Collection[str]) -> UnknownOption:
    """Say that there is no such option, and which one may be meant."""
    import difflib  # noqa: PLC0415 -- only a mistake needs it

    near = difflib.get_close_matches(option, known, 1)
    rule = f"there is no such {what}: "
    rule += f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
    error = UnknownOption.of(path, option, rule)
    assert isinstance(error, UnknownOption), "`of` makes the class that it is called on"  # noqa: S101
    return error


def _share(path: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise Invalid.of(path, value, f"must be a number from {least} to {most}")


@dataclass(frozen=True)
class Backoff:
    """How long to wait between attempts: `base`, then `factor` times as long each time, at most `longest`.

    >>> Backoff(base=5, longest=600).described()["max_ms"]
    600000
    """

    base: Length = 1.0
    factor: float = 2.0
    longest: Length = 60.0
    jitter: float = 0.25
    """The share of the wait by which it is shifted at random, either way."""

    def described(self) -> dict[str, int]:
        """As the store takes it."""
        base, longest = milliseconds("backoff.base", self.base), milliseconds("backoff.longest", self.longest)
        if longest < base:
            raise Invalid.of("backoff.longest", self.longest, f"must be at least base, {self.base}")
        for path, value, least, most in (("factor", self.factor, 1, 100), ("jitter", self.jitter, 0, 1)):
            _share(f"backoff.{path}", value, least, most)
        factor, jitter = round(self.factor * 100), round(self.jitter * 100)
        return {"base_ms": base, "factor_percent": factor, "max_ms": longest, "jitter_percent": jitter}


def backoff(path: str, value: object) -> dict[str, int]:
    """Read a backoff, or its base."""
    if isinstance(value, Backoff):
        return value.described()
    if isinstance(value, (int, float, timedelta)) and not isinstance(value, bool):
        base = seconds(path, value)
        return Backoff(base=base, longest=max(base, 60.0)).described()
    raise Invalid.of(path, value, "must be a qo.Backoff, or the first wait in seconds")


class JobOptions(TypedDict, total=False):
    """Every option of a submit but `on_limit`."""

    queue: str
    """The line that it stands in. Defaults to the task's, else `default`."""
    priority: int
    """Lower runs first. Defaults to the task's, else 0."""
    delay: Length
    """Not before this much time has passed, by the store's clock."""
    run_at: datetime
    """Not before this date."""
    good_until: datetime
    """It expires if it has not started by then."""
    max_attempts: int
    """After how many tries it fails for good. Defaults to the task's, else 3."""
    backoff: Backoff | Length
    """How long to wait between tries. Defaults to the task's."""
    timeout: Length
    """How long one try may take. Defaults to the task's, else for ever."""
    group: str
    """The group whose slots it takes. Defaults to the task's, else the task's name."""
    key: str | None
    """Divides the group: `key="customer-7"`."""
    cost: int
    """How many slots it takes of its group and key. Defaults to 1."""
    limits: Mapping[str, int]
    """Further groups, and the slots that it takes there: `{"openai": 1, "gpu": 2}`."""
    limit: int | None
    """A limit for its group (with a key: for that key) where nothing else sets one."""
    clear_limit: bool
    """Clears the limit that earlier submits brought for its group (with a key: for that key)."""
    idempotency_key: str
    """A second submit with the same key is the same job."""
    workflow: str
    """The workflow that it is the next step of."""
    on_failure: OnFailure
    """What the workflow does when a step does not succeed."""
    traceparent: str
    """The trace that it belongs to, as in the header `traceparent` of W3C Trace Context."""
    id: str
    """The job's id, a UUID. Defaults to a new one."""


class SubmitOptions(JobOptions, total=False):
    """Every option of a submit."""

    on_limit: OnLimit
    """What to do if its group has no room: `wait` in line, `reject` with LimitReached, or `skip` and return None."""


def _limits(path: str, value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise Invalid.of(path, value, 'must be groups and slots, as in {"gpu": 2}')
    limits = cast("Mapping[object, object]", value)
    return {group(path, one): number(f"{path}[{one}]", slots, 1) for one, slots in limits.items()}


def job_id(path: str, value: object) -> str:
    """Read the id of a job."""
    try:
        return str(value if isinstance(value, UUID) else UUID(text(path, value)))
    except ValueError as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid.of(path, value, "must be a UUID") from None


_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent(path: str, value: object) -> str:
    """Read the trace that a job belongs to."""
    if not isinstance(value, str) or not _TRACEPARENT.fullmatch(value):
        rule = (
            "must be 00-TRACE-SPAN-FLAGS, with 32, 16 and 2 hexadecimal digits in lower case, "
            "and neither TRACE nor SPAN all zeros"
        )
        raise Invalid.of(path, value, rule)
    return value


# What an option is called in the store, and how it is read.
_READ: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "queue": ("queue", name),
    "priority": ("priority", lambda path, value: number(path, value, -_I32, _I32 - 1)),
    "delay": ("delay", milliseconds),
    "run_at": ("run_at", moment),
    "good_until": ("good_until", moment),
    "max_attempts": ("max_attempts", lambda path, value: number(path, value, 1, 1000)),
    "backoff": ("retry", backoff),
    "timeout": ("timeout_ms", milliseconds),
    "group": ("group", name),
    "key": ("key", key),
    "cost": ("cost", lambda path, value: number(path, value, 1)),
    "limits": ("limits", _limits),
    "limit": ("limit", number),
    "clear_limit": ("clear_limit", truth),
    "idempotency_key": ("idempotency_key", key),
    "workflow": ("workflow", name),
    "on_failure": ("on_failure", lambda path, value: one_of(path, value, ("halt", "continue"))),
    "on_limit": ("on_limit", lambda path, value: one_of(path, value, ("wait", "reject", "skip"))),
    "traceparent": ("traceparent", traceparent),
    "id": ("id", job_id),
}


def template(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the jobs of a task that have the same options, but for their ids and payloads.

    A `delay` stays in it, in milliseconds: the caller turns it into `run_at`, by the store's time.

    >>> template("resize", {"timeout": 5, "key": None})
    {'task': 'resize', 'timeout_ms': 5000}
    """
    job: dict[str, Any] = {"task": task}
    for option, value in options.items():
        if option not in _READ:
            raise unknown("options", "option of a job", option, _READ)
        if value is None or (option == "key" and value == ""):
            continue
        stored, read = _READ[option]
        job[stored] = read(option, value)
    if "delay" in job and "run_at" in job:
        raise Invalid.of("delay", options["delay"], "is for a job without run_at")
    return job


def new_ids(count: int) -> list[str]:
    """Make UUIDv7s: the ids of later jobs are larger.

    >>> [len(new) for new in new_ids(2)]
    [36, 36]
    """
    now = f"{time.time_ns() // 1_000_000:012x}"
    begin = f"{now[:8]}-{now[8:]}-7"
    random = os.urandom(10 * count).hex()
    ids: list[str] = []
    for at in range(0, 20 * count, 20):
        variant = "89ab"[int(random[at], 16) & 3]
        ids.append(
            f"{begin}{random[at + 1 : at + 4]}-{variant}{random[at + 4 : at + 7]}-{random[at + 7 : at + 19]}",
        )
    return ids


def described(task: str, payload: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a job as the store takes it, but for a `delay`: it needs the store's time."""
    job = template(task, options)
    job.pop("delay", None)
    if "id" not in job:
        job["id"] = new_ids(1)[0]
    job["payload"] = payload
    return job
