"""What a store says about jobs and groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any


def moment(ms: int | None) -> datetime | None:
    """Read a time of the store: milliseconds since 1970."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, tz=timezone.utc)


@dataclass(frozen=True)
class Attempt:
    """One try of a job."""

    number: int
    worker: str
    outcome: str
    error: str | None
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True)
class JobInfo:
    """A job as the store has it. `raw` has every field."""

    id: str
    task: str
    queue: str
    state: str
    key: str | None
    group: str
    priority: int
    attempts_used: int
    max_attempts: int
    submitted_at: datetime
    raw: dict[str, Any]

    @classmethod
    def read(cls, raw: dict[str, Any]) -> JobInfo:
        """Read what a store answered."""
        names = ("id", "task", "queue", "state", "key", "group", "priority", "attempts_used", "max_attempts")
        submitted_at = datetime.fromtimestamp(raw["submitted_at"] / 1000, tz=timezone.utc)
        return cls(**{name: raw[name] for name in names}, submitted_at=submitted_at, raw=raw)


@dataclass(frozen=True)
class Explanation:
    """Why a job is not running. `reasons` is empty if it runs or has ended."""

    job: str
    state: str
    reasons: list[dict[str, Any]]


@dataclass(frozen=True)
class SlotInfo:
    """A slot that is taken."""

    slot_id: int
    slots: int
    worker_id: str
    task_id: str
    acquired_at: datetime
    expires_at: datetime


@dataclass(frozen=True)
class ConcurrencyStatus:
    """A group, its limit and what holds its slots."""

    group: str
    limit: int | None
    active: int
    slots: list[SlotInfo]

    @classmethod
    def read(cls, raw: dict[str, Any]) -> ConcurrencyStatus:
        """Read what a store answered."""
        status = raw["status"]
        slots = [
            SlotInfo(
                slot_id=holder["token"],
                slots=holder["slots"],
                worker_id=holder["worker"],
                task_id=next(iter(holder["by"].values())).get("job") or next(iter(holder["by"].values())).get("lease"),
                acquired_at=datetime.fromtimestamp(holder["since"] / 1000, tz=timezone.utc),
                expires_at=datetime.fromtimestamp(holder["lease_until"] / 1000, tz=timezone.utc),
            )
            for holder in raw["holders"]
        ]
        return cls(group=status["group"], limit=status["limit"], active=status["used"], slots=slots)
