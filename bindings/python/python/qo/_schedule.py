"""Schedules: jobs that the clock submits, once across the fleet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from ._errors import Invalid
from ._options import milliseconds, number, one_of, text
from ._options import name as checked_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._registered import Named

Missed = Literal["latest", "all", "skip"]

_FIELDS = (5, 6)
_NAMED = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")


def check_cron(cron: object) -> str:
    """Look at a cron expression. The worker, which pushes it, reads it closely."""
    fields = text("cron", cron).split()
    if len(fields) not in _FIELDS and " ".join(fields) not in _NAMED:
        rule = f"must have five fields, as in '0 3 * * *', or six with seconds first, or be one of {', '.join(_NAMED)}"
        raise Invalid.of("cron", cron, rule)
    return " ".join(fields)


def described(registered: Named, cron: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a schedule of a task as the store takes it."""
    arguments: dict[str, Any] = dict(options.get("arguments") or {})
    try:
        payload = registered.payload((), arguments)
    except TypeError as error:
        raise Invalid.of("arguments", arguments, f"must be those of the task: {error}") from None
    usual = registered.options.submit
    schedule: dict[str, Any] = {
        "cron": check_cron(cron),
        "timezone": text("timezone", options.get("timezone") or "UTC"),
        "task": registered.name,
        "payload": payload if json.loads(payload) else "null",
        "missed": one_of("missed", options.get("missed", "latest"), ("latest", "all", "skip")),
        "overlap": bool(options.get("overlap", False)),
    }
    queue = options.get("queue") or usual.get("queue")
    if queue is not None:
        schedule["queue"] = checked_name("queue", queue)
    for option in ("priority", "max_attempts"):
        value = options.get(option)
        value = usual.get(option) if value is None else value
        if value is not None:
            schedule[option] = number(option, value, -(1 << 31), (1 << 31) - 1)
    if options.get("timeout") is not None:
        schedule["timeout_ms"] = milliseconds("timeout", options["timeout"])
    return schedule
