"""`qo`: the command line, and the worker that `qo worker MODULE:OBJECT` runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _qo

if TYPE_CHECKING:
    from ._app import BaseApp

GUARD = Path(__file__).with_name("qo-guard")
"""The executable that guards programs and child processes: it starts without Python."""


def main() -> int:
    """Run the command line of this process."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["guard"]:
        os.execv(GUARD, ["task-guard", *arguments])  # noqa: S606
    # Rust's commands rely on the default: Ctrl-C ends them.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answer = _qo.main(arguments, [sys.executable, "-m", "qo"], str(GUARD))
    if isinstance(answer, int):
        return answer
    asked: dict[str, Any] = json.loads(answer)
    if asked["reload"]:
        from ._reload import reload  # noqa: PLC0415

        return reload([argument for argument in arguments if argument != "--reload"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _work(asked)
    finally:
        _qo.finish_logging()


def _work(asked: dict[str, Any]) -> int:
    from . import _logging  # noqa: PLC0415
    from ._errors import QoError  # noqa: PLC0415
    from ._target import TargetError, load  # noqa: PLC0415

    _logging.show(quiet=asked["quiet"])
    try:
        app = load(asked["target"])
    except TargetError as error:
        return _qo.report(json.dumps({"kind": "invalid", "message": str(error)}))
    except Exception:  # noqa: BLE001 -- whatever the module raises is shown as Python shows it
        traceback.print_exc()
        return 1
    try:
        return _run(app, asked)
    except QoError as error:
        return _qo.report(error.as_json())


def _run(app: BaseApp, asked: dict[str, Any]) -> int:
    from ._errors import from_json  # noqa: PLC0415
    from ._worker import Running  # noqa: PLC0415

    look = {"flags": asked["flags"], "config": asked["config"], "tasks": asked["tasks"]}
    try:
        settings: dict[str, Any] = json.loads(_qo.settings(json.dumps(look)))
    except ValueError as error:
        raise from_json(str(error)) from None
    for warning in settings["warnings"]:
        sys.stderr.write(f"warning: {warning}\n")
    app.use_store(settings)
    if app.client.url.startswith("memory:"):
        sys.stderr.write("warning: memory: ends with this process, and no other process can submit to it\n")
    described = app.describe_worker(settings)
    described |= {"programs": settings["programs"], "guard": str(GUARD)}
    children = described.get("max_concurrent_tasks") if "worker.processes" in settings["given"] else None
    if children:
        described["processes"] = {
            "children": children,
            "command": [sys.executable, "-m", "qo._child", asked["target"], *(["--quiet"] if asked["quiet"] else [])],
            "guard": str(GUARD),
            "recycle_jobs": asked["recycle_jobs"],
            "recycle_mib": asked["recycle_mib"],
        }

    async def work() -> None:
        await Running(app, described).run(until_signal=True)
        await app.aclose()

    asyncio.run(work())
    return 0
