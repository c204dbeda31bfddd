"""A namespace in memory for tests: its clock, and calls that know what the app declares."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from . import _qo
from ._errors import Invalid, from_json
from ._namespace import Namespace
from ._options import milliseconds
from ._views import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._app import BaseApp
    from ._call import Question
    from ._options import Length

# What the extension takes at once.
_STEP = 2**32 - 1


class MemoryNamespace(Namespace):
    """A namespace in memory. It has the app's limits and schedules before the first call, as if a worker had run."""

    __slots__ = ("_app", "_declared")

    def __init__(self, app: BaseApp, now: datetime | None) -> None:
        start = datetime.now(timezone.utc) if now is None else now
        if start.tzinfo is None:
            raise Invalid.of("now", start, "must be a datetime with a time zone")
        super().__init__("memory:", _qo.memory(round(start.timestamp() * 1000)))
        self._app = app
        self._declared: tuple[int, int] | None = None

    def ask(self, name: str, arguments: object = None, seconds: float | None = None) -> Question:
        """Make a call. `seconds` is how long to wait for its answer."""
        self.declare()
        return super().ask(name, arguments, seconds)

    def answer(self, name: str, arguments: object = None) -> Any:
        """Make a call and wait for it, in an event loop, too: nothing here takes long."""
        question = super().ask(name, arguments)
        is_good, text = question.pending.wait()
        if not is_good:
            raise from_json(text)
        return json.loads(text)

    def describe_worker(self, **options: Any) -> dict[str, Any]:
        """Describe a worker of the app, by its code alone: neither `.qo.toml` nor the environment counts."""
        # The lease is the longest that there is, so that a handler may move the clock.
        described = self._app.describe_worker({}, **{"lease": timedelta(days=1), **options})
        configuration = described.setdefault("configuration", {"app": described["app"]})
        tasks = [task["options"] for task in described["tasks"]]
        limits = {task["group"] or task["task"]: task["max_concurrent"] for task in tasks}
        limits = {group: limit for group, limit in limits.items() if limit is not None}
        configuration["limits"] = {**limits, **configuration.get("limits", {})}
        return {**described, "tell_stuck": True}

    def declare(self) -> None:
        """Push what the app has declared since the last time."""
        declared = (len(self._app.tasks), len(self._app.schedules))
        if declared != self._declared:
            self._declared = declared
            self.answer("configure", self.describe_worker()["configuration"])

    def submit_at_once(self, jobs: Sequence[dict[str, Any]], delays: Sequence[Length | None]) -> list[dict[str, Any]]:
        """Submit jobs of a caller's transaction: they are there, however it ends."""
        self.declare()
        now: int = self.answer("now")
        dated = [
            job if delay is None else {**job, "run_at": now + milliseconds("delay", delay)}
            for job, delay in zip(jobs, delays, strict=True)
        ]
        outcomes: list[dict[str, Any]] = self.answer("submit", dated)
        return outcomes


class Clock:
    """The time of a store in memory. It stands still until a test moves it."""

    def __init__(self, namespace: MemoryNamespace) -> None:
        self._namespace = namespace

    def now(self) -> datetime:
        """Return the store's time."""
        return moment(self._namespace.answer("now"))

    def move(
        self,
        by: timedelta | None = None,
        /,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Move the time forward, and return it: `clock.move(hours=1)`, or by a timedelta.

        Jobs with a delay, retries and ticks of schedules become due; the next `drain` runs them.
        """
        length = (by or timedelta()) + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if length < timedelta():
            raise Invalid.of("move", str(length), "must not be negative: a store's time never goes back")
        # A schedule's next tick counts from when the store got to know it.
        self._namespace.declare()
        left = round(length / timedelta(milliseconds=1))
        while left > 0:
            step = min(left, _STEP)
            self._namespace.connection.advance(step)
            left -= step
        return self.now()

    def move_to(self, time: datetime) -> datetime:
        """Move the time forward to a moment, and return it."""
        if time.tzinfo is None:
            raise Invalid.of("time", time, "must be a datetime with a time zone")
        return self.move(time - self.now())

    def __repr__(self) -> str:
        return f"<Clock at {self.now().isoformat()}>"
