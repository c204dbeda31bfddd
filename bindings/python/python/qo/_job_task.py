"""The task behind a class of jobs: its constructor makes the payload, its `run` the result."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ._errors import Invalid
from ._registered import Named, Registered, TaskOptions
from ._schedule import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._context import Context
    from ._job import Job


def _without_self(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that looks like a method to a caller: the same parameters and annotations, but no `self`."""

    def method() -> None: ...

    if function is object.__init__:
        return method
    signature = inspect.signature(function)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:]
    )
    # Where names in annotations are looked for.
    method.__wrapped__ = function  # type: ignore[attr-defined]
    return method


def _names_around(job: type[Job]) -> dict[str, Any]:
    """Return the names of the function that a class is defined in, for its annotations."""
    if "<locals>" not in job.__qualname__:
        return {}
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("qo."):
        frame = frame.f_back
    return {} if frame is None else {**frame.f_locals}


class JobTask(Registered):
    """A class of jobs as a task. Its payload has the arguments of the constructor, by parameter name."""

    def __init__(self, name: str, job: type[Job], options: TaskOptions, before: JobTask | None = None) -> None:
        super().__init__(name, job.run, options)
        self.job = job
        self.before = before
        """The task of the class that this one replaces."""
        self.brings_limit = False
        """Whether the class says which limit its jobs bring."""
        self._names = _names_around(job)
        run = _without_self(job.run)
        self._run = Named(name, run, options, self._names)
        self._takes_context = len(self._run.parameters) < len(inspect.signature(run).parameters)
        for parameter in self._run.parameters:
            if parameter.default is parameter.empty:
                rule = "takes no argument but ctx: the constructor takes the others"
                raise Invalid.of(f"{job.__name__}.run", str(parameter), rule)
        self._init: Any = None
        self._constructor = self._read_constructor()

    def _read_constructor(self) -> Named:
        job = self.job
        self._init = job.__init__
        init = _without_self(self._init)
        constructor = Named(self.name, init, self.options, self._names)
        if len(constructor.parameters) < len(inspect.signature(init).parameters):
            raise Invalid.of(f"{job.__name__}.__init__", "ctx", "is a parameter of run(), not of the constructor")
        return constructor

    @property
    def constructor(self) -> Named:
        """The constructor, as if it were the function of a task."""
        if self._init is not self.job.__init__:
            # `@dataclass` has written a constructor since the class was defined.
            self._constructor = self._read_constructor()
        return self._constructor

    def compile(self) -> None:
        """Get everything ready that can fail."""
        self._run.compile()
        self.constructor.compile()

    def schedules(self) -> dict[str, dict[str, Any]]:
        """Return the schedule of the class, by its name, as the store takes it."""
        job = self.job
        if job.schedule is None:
            return {}
        try:
            return {self.name: described(self.constructor, job.schedule, {"timezone": job.timezone})}
        except Invalid as error:
            raise Invalid.of(f"{job.__name__}.schedule", job.schedule, str(error)) from None

    def payload(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        """Write the arguments of the constructor as a payload."""
        return self.constructor.payload(arguments, named)

    def arguments(self, payload: str, context: Context) -> tuple[list[Any], dict[str, Any]]:
        """Make the job that a payload describes: `run` takes it as `self`."""
        _, named = self.constructor.arguments(payload, context)
        job = self.job(**named)
        return ([job, context] if self._takes_context else [job]), {}

    def result(self, value: Any) -> Any:
        """Make what `run` returned, by its annotation, of JSON."""
        return self._run.result(value)
