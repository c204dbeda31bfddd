"""Why a job is not running."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._views import View, moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._views import JobState


def _step(raw: dict[str, Any]) -> str:
    return f"step {raw['step']} ({raw['state']}, job {raw['job']})"


_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "scheduled_until": lambda raw: f"it is scheduled for {moment(raw['run_at'])}",
    "retry_at": lambda raw: f"its next try is at {moment(raw['run_at'])}",
    "expired": lambda raw: f"it expired at {moment(raw['good_until'])}",
    "queue_paused": lambda raw: f"queue {raw['queue']} is paused",
    "waiting_for_step": lambda raw: f"workflow {raw['workflow']} is at {_step(raw['waits_for'])}",
    "workflow_halted": lambda raw: f"workflow {raw['workflow']} is halted by {_step(raw['halted_by'])}",
    "claimed_by_prefetch": lambda raw: f"worker {raw['worker']} has claimed it ahead of time",
    "held_by_limit_zero": lambda raw: f"the limit of group {raw['group']} is 0",
    "can_never_run": lambda raw: f"it needs {raw['cost']} slots of group {raw['group']}, whose limit is {raw['limit']}",
    "group_full": lambda raw: (
        f"group {raw['group']} is full: {raw['used']} of {raw['limit']} slots are taken, "
        f"it is number {raw['position']} in line"
    ),
    "reserved_for": lambda raw: f"the free slots of group {raw['group']} are kept for job {raw['job']}",
    "no_live_worker": lambda raw: f"no live worker has task {raw['task']} and serves queue {raw['queue']}",
    "workers_busy": lambda raw: f"all its workers are busy ({raw['saturated']}) or draining ({raw['draining']})",
    "only_waiting_for_claim": lambda raw: f"nothing keeps it: it is number {raw['position']} in line",
}


@dataclass(eq=False, repr=False)
class Reason(View):
    """One thing that keeps a job from running.

    >>> print(Reason("queue_paused", {"reason": "queue_paused", "queue": "mail"}))
    queue mail is paused
    """

    kind: str
    """As in `group_full`, `no_live_worker`, `scheduled_until`."""
    raw: dict[str, Any] = field(repr=False)
    """Every detail, by name."""

    def __str__(self) -> str:
        text = _TEXTS.get(self.kind)
        return self.kind.replace("_", " ") if text is None else text(self.raw)

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]


@dataclass(eq=False, repr=False)
class Explanation(View):
    """Why a job is not running. `reasons` is empty if it runs or has ended."""

    job: str
    state: JobState
    reasons: list[Reason]

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Explanation:
        """Read what a store answered."""
        return cls(raw["job"], raw["state"], [Reason(reason["reason"], reason) for reason in raw["reasons"]])

    def __str__(self) -> str:
        return f"job {self.job} is {self.state}" + "".join(f"\n- {reason}" for reason in self.reasons)
