"""Which classes of jobs there are, and which app runs them."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from ._errors import Invalid

if TYPE_CHECKING:
    from ._app import BaseApp
    from ._job_task import JobTask
    from ._tasks import BaseTasks

# Several threads may submit, and so register, at the same time.
_lock = threading.RLock()
# The classes that name no app, by task: the default app runs them, whenever it is made.
_of_default: dict[str, JobTask] = {}


def _is_redefinition(old: object, new: JobTask) -> bool:
    """Whether a class is defined again.

    `@dataclass(slots=True)` does so, a function that is called twice, and a cell of a notebook.
    """
    if old is not None and old is new.before:
        return True
    job, again = getattr(old, "job", None), new.job
    if not isinstance(job, type) or (job.__module__, job.__qualname__) != (again.__module__, again.__qualname__):
        return False
    return "<locals>" in again.__qualname__ or hasattr(sys, "ps1")


def _add(home: BaseTasks, task: JobTask) -> None:
    old = home.tasks.get(task.name)
    if old is task:
        return
    if _is_redefinition(old, task):
        del home.tasks[task.name]
    home.add(task)


def declare(task: JobTask, home: BaseTasks | None) -> None:
    """Register a class of jobs on its app. One that names no app waits for the default app to be used."""
    with _lock:
        if home is not None:
            _add(home, task)
            return
        old = _of_default.get(task.name)
        if old is not None and not _is_redefinition(old, task):
            raise Invalid.of("task", task.name, "is declared twice")
        _of_default[task.name] = task


def adopt(app: BaseApp) -> None:
    """Register the classes that name no app on the default app."""
    with _lock:
        for task in _of_default.values():
            _add(app, task)


def adopt_if_default(app: BaseApp) -> None:
    """Register the classes that name no app on this app, if it is the default."""
    from ._app import get_default  # noqa: PLC0415 -- it imports this module

    try:
        is_default = get_default() is app
    except LookupError:
        return
    if is_default:
        adopt(app)


def app_of(task: JobTask) -> BaseApp:
    """Return the app that runs a class of jobs. LookupError if it names none and there is no default."""
    from ._app import get_default  # noqa: PLC0415 -- it imports this module

    home = task.job.__qo_app__
    if home is not None:
        return home.app
    app: BaseApp = get_default()
    adopt(app)
    return app
