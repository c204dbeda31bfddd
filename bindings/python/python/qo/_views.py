"""What a store says about jobs, groups, queues, workers, workflows and schedules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

JobState = Literal["pending", "claimed", "running", "succeeded", "failed", "cancelled", "expired"]
WorkflowState = Literal["active", "halted", "finished", "cancelled"]


def moment(ms: int) -> datetime:
    """Read a time of the store: milliseconds since 1970."""
    return datetime.fromtimestamp(ms / 1000, tz=timezone.utc)


def moment_or_none(ms: int | None) -> datetime | None:
    """Read a time of the store that may not be there."""
    return None if ms is None else moment(ms)


class Page(list[T], Generic[T]):
    """A part of a long list. `next` is where the next part begins: pass it as `after`. None if this is the last."""

    def __init__(self, items: Iterable[T], following: Any = None) -> None:
        super().__init__(items)
        self.next: Any = following


class View:
    """A dataclass. What all of them need is written here once, because writing it for each would slow the import."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def _shown(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name, one in self.__dataclass_fields__.items() if one.repr]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._shown())})"


@dataclass(eq=False, repr=False)
class Attempt(View):
    """One try of a job."""

    number: int
    worker: str
    outcome: str
    """How it ended: `succeeded`, `retried`, `failed`, `snoozed`, `released`, `cancelled`, `lease_ended`, …."""
    error: str | None
    started_at: datetime
    ended_at: datetime
    fence_token: int = 0

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Attempt:
        """Read what a store answered."""
        started_at, ended_at = moment(raw["started_at"]), moment(raw["ended_at"])
        outcome, error = raw["outcome"], raw.get("error")
        return cls(raw["number"], raw["worker"], outcome, error, started_at, ended_at, raw["token"])


@dataclass(eq=False, repr=False)
class Progress(View):
    """How far a job is, by its handler's own report."""

    fraction: float
    """From 0 to 1."""
    note: str
    at: datetime


@dataclass(eq=False, repr=False)
class Run(View):
    """The worker that runs a job, or has claimed it ahead of time."""

    worker: str
    fence_token: int
    since: datetime
    lease_until: datetime
    progress: Progress | None

    @classmethod
    def read(cls, raw: dict[str, Any] | None) -> Run | None:
        """Read what a store answered."""
        if raw is None:
            return None
        told = raw.get("progress")
        progress = None if told is None else Progress(told["percent"] / 100, told["note"], moment(told["at"]))
        return cls(raw["worker"], raw["token"], moment(raw["since"]), moment(raw["lease_until"]), progress)


@dataclass(eq=False, repr=False)
class JobInfo(View):
    """A job as the store has it. `raw` has every field as it was told."""

    id: str
    task: str
    queue: str
    state: JobState
    key: str | None
    group: str
    priority: int
    cost: int
    limits: dict[str, int]
    attempts_used: int
    max_attempts: int
    submitted_at: datetime
    run_at: datetime
    good_until: datetime | None
    finished_at: datetime | None
    timeout: float | None
    idempotency_key: str | None
    traceparent: str | None
    cancel_requested: bool
    workflow: str | None
    step: int | None
    running: Run | None
    claimed: Run | None
    attempts: list[Attempt]
    """Its tries, the oldest first. Empty in a listing."""
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, raw: dict[str, Any]) -> JobInfo:
        """Read what a store answered."""
        timeout_ms = raw.get("timeout_ms")
        return cls(
            **{name: raw[name] for name in _AS_TOLD},
            submitted_at=moment(raw["submitted_at"]),
            run_at=moment(raw["run_at"]),
            good_until=moment_or_none(raw["good_until"]),
            finished_at=moment_or_none(raw["finished_at"]),
            timeout=None if timeout_ms is None else timeout_ms / 1000,
            running=Run.read(raw["running"]),
            claimed=Run.read(raw["claimed"]),
            attempts=[Attempt.read(attempt) for attempt in raw.get("attempts", ())],
            raw=raw,
        )

    @property
    def payload(self) -> Any:
        """What its handler gets; None in a listing."""
        return json.loads(self.raw.get("payload") or "null")

    @property
    def output(self) -> Any:
        """What its handler returned; None in a listing."""
        return json.loads(self.raw.get("output") or "null")

    @property
    def progress(self) -> Progress | None:
        """How far it is, if it runs and has said so."""
        return None if self.running is None else self.running.progress


_AS_TOLD = (
    "id",
    "task",
    "queue",
    "state",
    "key",
    "group",
    "priority",
    "cost",
    "limits",
    "attempts_used",
    "max_attempts",
    "idempotency_key",
    "traceparent",
    "cancel_requested",
    "workflow",
    "step",
)


@dataclass(eq=False, repr=False)
class SlotInfo(View):
    """Slots of a group that a job or a program holds."""

    slot_id: int
    """The fence token of the holder: what `concurrency.release` takes."""
    slots: int
    worker_id: str
    task_id: str
    """The job's id; of a program, the id of its lease."""
    acquired_at: datetime
    expires_at: datetime

    @classmethod
    def read(cls, raw: dict[str, Any]) -> SlotInfo:
        """Read what a store answered."""
        by = next(iter(raw["by"].values()))
        task = by.get("job") or by.get("lease")
        return cls(raw["token"], raw["slots"], raw["worker"], task, moment(raw["since"]), moment(raw["lease_until"]))


@dataclass(eq=False, repr=False)
class HeldSlot(View):
    """A slot that `ConcurrencyManager.try_acquire` took."""

    group: str
    slot_id: int
    """The same as `token`."""
    task_id: str
    """The id that the caller gave."""
    token: int
    """Grows with every holder: a write with an older token comes from a program that has lost the slot."""
    expires_at: datetime
    """When the lease is over unless it is extended, by the store's clock."""

    @classmethod
    def read(cls, raw: dict[str, Any]) -> HeldSlot:
        """Read what a store answered."""
        return cls(raw["group"], raw["slot_id"], raw["task_id"], raw["token"], moment(raw["expires_at"]))


@dataclass(eq=False, repr=False)
class GroupInfo(View):
    """A group and its limit."""

    group: str
    limit: int | None
    """None if it has no limit."""
    active: int
    """Slots that are taken."""
    live: int
    """Slots that all jobs that wait and run take together."""
    source: str | None
    """Where the limit is from: `operator`, `config`, `code` or `submit`."""

    @classmethod
    def read(cls, raw: dict[str, Any]) -> GroupInfo:
        """Read what a store answered."""
        return cls(raw["group"], raw["limit"], raw["used"], raw["live"], raw["source"])


@dataclass(eq=False, repr=False)
class ConcurrencyStatus(GroupInfo):
    """A group, its limit and what holds its slots."""

    slots: list[SlotInfo] = field(default_factory=list[SlotInfo])

    @classmethod
    def read(cls, raw: dict[str, Any]) -> ConcurrencyStatus:
        """Read what a store answered."""
        status, slots = raw["status"], [SlotInfo.read(holder) for holder in raw["holders"]]
        return cls(status["group"], status["limit"], status["used"], status["live"], status["source"], slots)


@dataclass(eq=False, repr=False)
class QueueInfo(View):
    """A queue and its jobs."""

    queue: str
    priority: int
    """Lower goes first."""
    paused: bool
    limit: int | None
    running: int
    claimed: int
    due: int
    scheduled: int
    waiting: int
    """Steps that are not next in their workflow."""

    @classmethod
    def read(cls, raw: dict[str, Any]) -> QueueInfo:
        """Read what a store answered."""
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__})


@dataclass(eq=False, repr=False)
class WorkerInfo(View):
    """A worker that is alive."""

    worker: str
    session: str
    queues: list[str]
    """Empty if it serves all."""
    tasks: list[str]
    permits: int
    free_permits: int
    memory_percent: int | None
    """How full its memory was when it last reported."""
    saturated: bool
    draining: bool
    running: int
    claimed: int
    opened_at: datetime
    lease_until: datetime

    @classmethod
    def read(cls, raw: dict[str, Any]) -> WorkerInfo:
        """Read what a store answered."""
        told: dict[str, Any] = {name: raw[name] for name in cls.__dataclass_fields__}
        told |= {"opened_at": moment(raw["opened_at"]), "lease_until": moment(raw["lease_until"])}
        return cls(**told)


@dataclass(eq=False, repr=False)
class StepInfo(View):
    """A step of a workflow."""

    step: int
    job: str
    state: JobState


@dataclass(eq=False, repr=False)
class WorkflowInfo(View):
    """A workflow."""

    workflow: str
    state: WorkflowState
    on_failure: Literal["halt", "continue"]
    steps: int
    live: int
    """Steps that have not ended."""
    head: StepInfo | None
    """The step that runs or is next, or the one that halts the workflow."""

    @classmethod
    def read(cls, raw: dict[str, Any]) -> WorkflowInfo:
        """Read what a store answered."""
        head = raw["head"]
        step = None if head is None else StepInfo(head["step"], head["job"], head["state"])
        return cls(raw["workflow"], raw["state"], raw["on_failure"], raw["steps"], raw["live"], step)


@dataclass(eq=False, repr=False)
class ScheduleInfo(View):
    """A schedule. `raw` has every field as it was told."""

    schedule: str
    cron: str
    timezone: str
    task: str
    enabled: bool
    next_at: datetime | None
    last_at: datetime | None
    last_job: str | None
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, raw: dict[str, Any]) -> ScheduleInfo:
        """Read what a store answered."""
        spec, last = raw["spec"], raw["last"]
        return cls(
            schedule=raw["schedule"],
            cron=spec["cron"],
            timezone=spec["timezone"],
            task=spec["task"],
            enabled=raw["enabled"],
            next_at=moment_or_none(raw["next"]),
            last_at=None if last is None else moment(last["tick"]),
            last_job=raw["last_job"],
            raw=raw,
        )
