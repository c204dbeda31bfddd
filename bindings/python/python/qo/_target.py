"""An app by its name: `shop.jobs:app`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from ._app import BaseApp
from ._task import TaskCalls


class TargetError(Exception):
    """A target that names no app."""


def load(target: str) -> BaseApp:
    """Import the app that `MODULE:OBJECT` names. The working directory is on the path, as for `python -m`.

    The object is an App, or a function without parameters that returns one. What the module raises is passed on.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Of a module that the app itself imports, the traceback says more.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise TargetError(f"{target}: there is no module {error.name}, neither here ({here}) nor installed") from None
    found = getattr(module, name, None)
    if found is None:
        apps = [key for key, value in vars(module).items() if isinstance(value, BaseApp)]
        there = f"; it has {', '.join(apps)}" if apps else ""
        raise TargetError(f"{target}: {module_name} has no {name}{there}")
    if isinstance(found, TaskCalls):
        raise TargetError(f"{target}: it is a task, {found.name}; name its app")
    if not isinstance(found, BaseApp) and callable(found):
        found = found()
    if not isinstance(found, BaseApp):
        raise TargetError(f"{target}: it is a {type(found).__name__}, not a qo.App")
    return found
