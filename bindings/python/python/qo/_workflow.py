"""Workflows: jobs that run strictly one after another, across the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from ._call import Async, call, drive
from ._handle import JobHandle, NewJob, submit
from ._options import name as checked_name
from ._options import one_of
from ._views import JobInfo, WorkflowInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._call import Steps
    from ._namespace import Namespace
    from ._options import OnFailure
    from ._task import TaskCalls

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H")


class WorkflowCalls(Generic[H]):
    """What `qo.Workflow` and `qo.sync.Workflow` do."""

    def __init__(self, namespace: Namespace, name: str, on_failure: OnFailure | None = None) -> None:
        self.name = checked_name("workflow", name)
        if on_failure is not None:
            one_of("on_failure", on_failure, ("halt", "continue"))
        self._on_failure = on_failure
        self._namespace = namespace

    def _step(self, job: NewJob[R]) -> NewJob[R]:
        description = {**job.description, "workflow": self.name}
        if self._on_failure is not None:
            description["on_failure"] = self._on_failure
        return NewJob(description, job.delay_ms, job.decode)

    def _make(self, *arguments: Any) -> H:
        raise NotImplementedError

    @call
    def submit_many(self, jobs: Iterable[NewJob[Any]]) -> Steps[list[H]]:
        """Add steps in one call, in this order: `submit_many([charge.job(7), ship.job(7)])`."""
        return (yield from submit(self._namespace, [self._step(job) for job in jobs], self._make))

    @call
    def status(self) -> Steps[WorkflowInfo]:
        """Look at the workflow. NotFound before its first step."""
        return WorkflowInfo.read((yield self._namespace.ask("workflow", self.name)))

    @call
    def steps(self) -> Steps[list[JobInfo]]:
        """Look at its steps, in order."""
        found: list[JobInfo] = []
        after: Any = None
        while True:
            told = yield self._namespace.ask("jobs", [{"workflow": self.name}, after, 1000])
            found += [JobInfo.read(job) for job in told["jobs"]]
            after = told["next"]
            if after is None:
                return sorted(found, key=lambda job: job.step or 0)

    @call
    def retry_step(self, step: int | None = None) -> Steps[None]:
        """Open the step that halts the workflow again. Conflict if `step` is not the one, or none halts it."""
        step = yield from self._halting(step)
        yield self._namespace.ask("retry_step", [self.name, step])

    @call
    def skip_step(self, step: int | None = None) -> Steps[None]:
        """Pass over the step that halts the workflow. Conflict if `step` is not the one, or none halts it."""
        step = yield from self._halting(step)
        yield self._namespace.ask("skip_step", [self.name, step])

    def _halting(self, step: int | None) -> Steps[int]:
        """Return a step, or the one at which the workflow is. The store refuses one that does not halt it."""
        if step is not None:
            return step
        told = yield self._namespace.ask("workflow", self.name)
        head: int = 1 if told["head"] is None else told["head"]["step"]
        return head

    @call
    def cancel(self) -> Steps[None]:
        """Cancel the steps that wait, tell the one that runs to stop, and take no further steps."""
        yield self._namespace.ask("cancel_workflow", self.name)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"


class Workflow(WorkflowCalls[JobHandle[Any]], Async):
    """Jobs that run strictly one after another, across the fleet. The first submit makes it.

    `on_failure` is what the steps behind do when one does not succeed: `halt` (they wait until it is retried or
    skipped) or `continue`.

    >>> import asyncio, qo
    >>> app = qo.App("memory:")
    >>> @app.task("charge")
    ... async def charge(order: int) -> None: ...
    >>> @app.task("ship")
    ... async def ship(order: int) -> None: ...
    >>> async def main():
    ...     order = app.workflow("order-7", on_failure="halt")
    ...     await order.submit_many([charge.job(7), ship.job(7)])
    ...     return [(step.step, step.task) for step in await order.steps()]
    >>> asyncio.run(main())
    [(1, 'charge'), (2, 'ship')]
    """

    def _make(self, *arguments: Any) -> JobHandle[Any]:
        return JobHandle(*arguments)

    async def submit(self, task: TaskCalls[P, R, Any], /, *arguments: P.args, **named: P.kwargs) -> JobHandle[R]:
        """Add a step: a job of a task, with its arguments."""
        step = self._step(task.job(*arguments, **named))
        handle: JobHandle[R] = (await drive(submit(self._namespace, [step], JobHandle)))[0]
        return handle
