"""Why a job is not running."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._views import View

if TYPE_CHECKING:
    from ._views import JobState


@dataclass(eq=False, repr=False)
class Reason(View):
    """One thing that keeps a job from running, in the words of `qo explain`.

    >>> print(Reason("queue_paused", {"reason": "queue_paused", "queue": "mail"}, "Its queue mail is paused."))
    Its queue mail is paused.
    """

    kind: str
    """As in `group_full`, `no_live_worker`, `scheduled_until`."""
    raw: dict[str, Any] = field(repr=False)
    """Every detail, by name."""
    text: str
    """A sentence."""
    advice: str | None = None
    """What to do about it, if anything can be done: often a command."""

    def __str__(self) -> str:
        return self.text

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]


@dataclass(eq=False, repr=False)
class Explanation(View):
    """Why a job is not running. `reasons` is empty if it runs or has ended."""

    job: str
    state: JobState
    reasons: list[Reason]

    @classmethod
    def read(cls, answer: tuple[dict[str, Any], list[tuple[str, str | None]]]) -> Explanation:
        """Read what a store answered, and the words for it."""
        raw, told = answer
        reasons = [Reason(one["reason"], one, *words) for one, words in zip(raw["reasons"], told, strict=True)]
        return cls(raw["job"], raw["state"], reasons)

    def __str__(self) -> str:
        lines = [f"job {self.job} is {self.state}."]
        for reason in self.reasons:
            lines.append(f"- {reason}")
            if reason.advice is not None:
                lines.append(f"  → {reason.advice}")
        return "\n".join(lines)
