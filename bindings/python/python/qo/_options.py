"""The options of a job, as a caller writes them and as the store takes them."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from ._errors import Invalid, seconds

Length = float | timedelta
OnLimit = Literal["wait", "reject", "skip"]


@dataclass(frozen=True)
class Backoff:
    """How long to wait between attempts: `base`, then `factor` times as long each time, at most `longest`."""

    base: Length = 1.0
    factor: float = 2.0
    longest: Length = 60.0
    jitter: float = 0.25

    def described(self) -> dict[str, int]:
        """As the store takes it."""
        return {
            "base_ms": milliseconds("backoff.base", self.base),
            "factor_percent": round(self.factor * 100),
            "max_ms": milliseconds("backoff.longest", self.longest),
            "jitter_percent": round(self.jitter * 100),
        }


class SubmitOptions(TypedDict, total=False):
    """Every option of a submit."""

    queue: str
    priority: int
    delay: Length
    run_at: datetime
    good_until: datetime
    max_attempts: int
    backoff: Backoff
    timeout: Length
    group: str
    key: str | None
    cost: int
    limits: dict[str, int]
    limit: int | None
    idempotency_key: str
    on_limit: OnLimit
    workflow: str
    on_failure: Literal["halt", "continue"]
    id: str


def milliseconds(name: str, length: Length) -> int:
    """Read a length of time: seconds, or a timedelta."""
    value = seconds(length)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise Invalid.of(name, length, "must be seconds, or a timedelta, and not negative")
    return round(value * 1000)


def _moment(name: str, value: datetime) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise Invalid.of(name, value, "must be a datetime with a time zone")
    return round(value.timestamp() * 1000)


_LENGTHS = {"timeout": "timeout_ms"}
_MOMENTS = ("run_at", "good_until")
_PLAIN = frozenset(SubmitOptions.__annotations__) - {"delay", "backoff", "timeout", "run_at", "good_until", "id"}


def new_id() -> str:
    """Make a UUIDv7: ids of later jobs are larger."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | (0x7 << 76)
    return str(uuid.UUID(int=value & ~(0x3 << 62) | (0x2 << 62)))


def described(task: str, payload: str, options: SubmitOptions) -> dict[str, Any]:
    """Describe a job as the store takes it. A `delay` is left to the caller: it needs the store's time."""
    job: dict[str, Any] = {"id": options.get("id") or new_id(), "task": task, "payload": payload}
    for name, value in options.items():
        if name in _PLAIN:
            if value is not None and value != "":
                job[name] = value
        elif name in _LENGTHS:
            job[_LENGTHS[name]] = milliseconds(name, value)  # type: ignore[arg-type]
        elif name in _MOMENTS:
            job[name] = _moment(name, value)  # type: ignore[arg-type]
        elif name == "backoff":
            job["retry"] = value.described()  # type: ignore[attr-defined]
        elif name not in ("id", "delay"):
            known = ", ".join(sorted(SubmitOptions.__annotations__))
            raise Invalid.of("options", name, f"there is no such option: there are {known}")
    return job
