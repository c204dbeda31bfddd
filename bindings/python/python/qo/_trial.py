"""An app in a test: a worker that runs what is due, and what came of it."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._call import refuse_in_loop
from ._errors import JobFailed
from ._memory import Clock, MemoryNamespace
from ._views import JobInfo
from ._worker import Running

if TYPE_CHECKING:
    from datetime import datetime

    from ._app import BaseApp

# How often it looks whether the worker is done.
_PAUSE = 0.001
# How long handlers may take to stop after `drain` has given up.
_GRACE = 1.0
_PAGE = 1000
_FAILED = ("retried", "failed", "lease_ended")


@dataclass(frozen=True)
class Ran:
    """An attempt that `drain` has made."""

    job: str
    """The job's id."""
    task: str
    attempt: int
    """1 for the first try."""
    outcome: str
    """`succeeded`, `retried` (it failed and will be tried again), `failed`, `snoozed` or `cancelled`."""
    result: Any
    """What the handler returned, by its return annotation."""
    error: str | None
    """What went wrong, with the traceback."""
    info: JobInfo = field(repr=False)
    """The job after the drain."""


class Drained(list[Ran]):
    """The attempts that `drain` has made, in the order in which they began."""

    @property
    def failed(self) -> list[Ran]:
        """The attempts that failed, whether or not there will be another."""
        return [ran for ran in self if ran.outcome in _FAILED]

    def check(self) -> Drained:
        """Raise JobFailed, with the error and the traceback, if an attempt failed. Return the same list."""
        for ran in self.failed:
            text = f"attempt {ran.attempt} of job {ran.job} ({ran.task}) {ran.outcome}: {ran.error}"
            raise JobFailed(text, job=ran.job, error=ran.error or ran.outcome)
        return self


class Trial:
    """An app whose jobs are in memory for a while. `qo.testing.replaced(app)` makes it."""

    def __init__(self, app: BaseApp, now: datetime | None = None) -> None:
        self.app = app
        """The app."""
        self._namespace = MemoryNamespace(app, now)
        self.clock = Clock(self._namespace)
        """The store's time, which the test moves."""
        # Fence tokens grow: attempts of later drains have larger ones.
        self._newest = 0

    @property
    def namespace(self) -> MemoryNamespace:
        """The namespace in memory. Not part of the interface."""
        return self._namespace

    def close(self) -> None:
        """Forget the jobs. Calls raise from now on."""
        for question in self._namespace.close():
            question.pending.wait()

    async def drain(self, *, timeout: float = 30.0) -> Drained:
        """Run what is due, and what that submits, until nothing is left; return the attempts that were made.

        A worker runs them as in production: side by side, `async def` on this event loop, `def` in threads. What is
        due later (a delay, a retry, a schedule) waits until the clock moves. A handler's exception does not end it:
        look at the outcomes, or call `check()` on them. TimeoutError if it takes longer than `timeout` seconds.
        """
        self.app.load()
        if self.app.tasks:
            await self._work(Running(self.app, self._namespace.describe_worker()), timeout)
        return self._drained()

    def drain_sync(self, *, timeout: float = 30.0) -> Drained:
        """Do what `drain` does, without asyncio, one job at a time, in the order of the claim.

        A `def` handler runs in this thread, so that it sees what the test has done in a transaction of its own.
        """
        refuse_in_loop()
        self.app.load()
        if self.app.tasks:
            self._work_here(timeout)
        return self._drained()

    def _work_here(self, timeout: float) -> None:
        running = Running(self.app, self._namespace.describe_worker(max_concurrent_tasks=1), threads=False)
        # Set when there is a worker to serve, or there is none.
        begun = threading.Event()
        errors: list[BaseException] = []

        def work() -> None:
            try:
                asyncio.run(self._work(running, timeout, begun))
            except BaseException as error:  # noqa: BLE001 -- it is raised in the thread of the test
                errors.append(error)
            finally:
                begun.set()

        thread = threading.Thread(target=work, name="qo-testing", daemon=True)
        thread.start()
        begun.wait()
        if not errors:
            running.serve()
        thread.join()
        if errors:
            raise errors[0]

    async def _work(self, running: Running, timeout: float, begun: threading.Event | None = None) -> None:
        """Run a worker until it has nothing to do."""
        worker = asyncio.ensure_future(running.run(until_signal=False))
        try:
            await asyncio.wait_for(self._until_idle(worker, begun), timeout)
        except asyncio.TimeoutError:
            left = self._left()
            running.release()
            await asyncio.wait([worker], timeout=_GRACE)
            raise TimeoutError(f"not all that is due has run within {timeout} s: {left}") from None
        except BaseException:
            running.release()
            raise
        running.drain()
        await worker

    async def _until_idle(self, worker: asyncio.Future[None], begun: threading.Event | None) -> None:
        asked = {"tasks": list(self.app.tasks)}
        while not worker.done():
            if begun is not None and not begun.is_set() and self._namespace.answer("workers"):
                begun.set()
            if self._namespace.answer("is_idle", asked) and (begun is None or begun.is_set()):
                return
            await asyncio.sleep(_PAUSE)

    def _left(self) -> str:
        states = {"states": ["running", "claimed", "pending"]}
        jobs: list[dict[str, Any]] = self._namespace.answer("jobs", [states, None, 10])["jobs"]
        return ", ".join(f"{job['task']} {job['id']} is {job['state']}" for job in jobs) or "nothing is left"

    def _drained(self) -> Drained:
        """Return the attempts that were made since the last time."""
        found: list[tuple[int, Ran]] = []
        every_job: dict[str, Any] = {}
        after: Any = None
        while True:
            page = self._namespace.answer("jobs", [every_job, after, _PAGE])
            for job in page["jobs"]:
                found += self._attempts(self._namespace.answer("job", job["id"]))
            after = page["next"]
            if after is None:
                break
        found.sort(key=lambda one: one[0])
        self._newest = found[-1][0] if found else self._newest
        return Drained(ran for _, ran in found)

    def _attempts(self, told: dict[str, Any]) -> list[tuple[int, Ran]]:
        info = JobInfo.read(told)
        attempts = [attempt for attempt in info.attempts if attempt.fence_token > self._newest]
        return [
            (
                attempt.fence_token,
                Ran(
                    job=info.id,
                    task=info.task,
                    attempt=attempt.number,
                    outcome=attempt.outcome,
                    result=self._result(info) if attempt.outcome == "succeeded" else None,
                    error=attempt.error,
                    info=info,
                ),
            )
            for attempt in attempts
        ]

    def _result(self, info: JobInfo) -> Any:
        value = json.loads(info.raw.get("output") or "null")
        decode = getattr(self.app.tasks.get(info.task), "result", None)
        return value if decode is None else decode(value)
