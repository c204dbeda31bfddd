"""What a worker is told: from the code, `.qo.toml`, the environment, flags and the options of `run`."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypedDict, cast

from . import _qo
from ._errors import Invalid, from_json
from ._options import Length, milliseconds, number, text, unknown
from ._options import name as checked_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ._registered import Registered


class WorkerSettings(TypedDict, total=False):
    """The settings of a worker but its name."""

    queues: Collection[str]
    """The queues that it serves. Defaults to all."""
    max_concurrent_tasks: int
    """How many jobs it runs at once. Defaults to 100."""
    lease: Length
    """How long its session lives without it. Defaults to 30 s."""
    cancel_grace: Length
    """How long a handler may take to stop after it was told to. Defaults to 10 s."""
    poll_interval: Length
    """How often it looks for work when nothing wakes it up."""
    claim_batch_size: int
    max_claim_batch: int
    max_claim_per_worker: int
    prefetch_buffer: int
    """How many jobs it holds beyond those that run. Defaults to 0: claiming is starting."""
    claim_lease: Length
    """How long it may hold a job that has not started. Needed with `prefetch_buffer`."""
    memory_threshold_percent: int
    """Above this share of memory it claims half as much. Defaults to 80."""
    latency_threshold: Length
    """While the p99 of attempts is above this, it claims 0.7 times as much. Defaults to off."""
    metrics_addr: str
    """Where it shows its metrics, such as `127.0.0.1:9464`. Defaults to nowhere."""
    metrics_insecure: bool
    """Lets `metrics_addr` be an address that other machines reach. Defaults to no."""


class WorkerOptions(WorkerSettings, total=False):
    """The settings of a worker. Each can stand in `[worker]` of `.qo.toml` and in the environment as well."""

    name: str
    """A label. Defaults to the host's name and the process id."""


_LAST_PORT = 65_535


def _queues(path: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [checked_name(path, value)]
    if not isinstance(value, Collection):
        raise Invalid.of(path, value, "must be names of queues")
    return [checked_name(path, queue) for queue in cast("Collection[object]", value)]


def _address(path: str, value: object) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
        right = bool(colon) and port.isascii() and port.isdecimal() and int(port) <= _LAST_PORT
    except ValueError:
        right = False
    if not right:
        raise Invalid.of(path, value, "must be an IP address and a port, such as 127.0.0.1:9464")
    return cast("str", value)


def _boolean(path: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Invalid.of(path, value, "must be True or False")
    return value


# What an option is called in the description of a worker, and how it is read.
_READ: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "name": ("name", checked_name),
    "queues": ("queues", _queues),
    "max_concurrent_tasks": ("max_concurrent_tasks", lambda path, value: number(path, value, 1)),
    "lease": ("lease_ms", milliseconds),
    "cancel_grace": ("cancel_grace_ms", milliseconds),
    "poll_interval": ("poll_interval_ms", milliseconds),
    "claim_batch_size": ("claim_batch_size", lambda path, value: number(path, value, 1, 10_000)),
    "max_claim_batch": ("max_claim_batch", lambda path, value: number(path, value, 1, 10_000)),
    "max_claim_per_worker": ("max_claim_per_worker", number),
    "prefetch_buffer": ("prefetch_buffer", lambda path, value: number(path, value, 0, 10_000)),
    "claim_lease": ("claim_lease_ms", milliseconds),
    "claim_lease_ms": ("claim_lease_ms", number),
    "memory_threshold_percent": ("memory_threshold_percent", lambda path, value: number(path, value, 1, 100)),
    "latency_threshold": ("latency_threshold_ms", milliseconds),
    "metrics_addr": ("metrics_addr", _address),
    "metrics_insecure": ("metrics_insecure", _boolean),
}


def read_settings(asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read `.qo.toml`, the environment and flags."""
    try:
        found: dict[str, Any] = json.loads(_qo.settings(json.dumps(asked or {})))
    except ValueError as error:
        raise from_json(str(error)) from None
    return found


def worker_settings(settings: Mapping[str, Any], config: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe how a worker works: options of the call first, then flags and environment, then code, then the file."""
    usual: dict[str, Any] = settings.get("worker") or {}
    found = {name: value for name, value in usual.items() if value is not None}
    given: Mapping[str, Any] = settings.get("given", {})
    in_code: dict[str, Any] = {} if config is None else config.worker()
    for name, value in in_code.items():
        source = given.get(f"worker.{name}", {"kind": "file"})["kind"]
        if source == "file":
            found[name] = value
    for option, value in options.items():
        if option not in _READ:
            raise unknown("options", "option of a worker", option, [name for name in _READ if name != "claim_lease_ms"])
        if value is not None:
            described, read_option = _READ[option]
            found[described] = read_option(option, value)
    return found


def app_name(settings: Mapping[str, Any], in_code: str | None) -> str:
    """Return the name of the app. Code and file must agree."""
    given = settings.get("given", {}).get("app")
    if in_code is None:
        return str(settings.get("app", "default"))
    if given is None or given["value"] == in_code:
        return in_code
    if given["kind"] != "file":
        return str(given["value"])
    raise Invalid.of(
        "name", in_code, f"{given['source']} sets app = {json.dumps(given['value'])}: leave one of them out"
    )


def merged_configuration(
    settings: Mapping[str, Any],
    config: Any,
    tasks: Iterable[Registered],
    schedules: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    """Merge what the file, AppConfig and the code say about limits, queues and schedules."""
    merged: dict[str, Any] = dict(settings.get("configuration") or {})
    limits: dict[str, int] = dict(merged.get("limits") or {})
    in_code: dict[str, Any] = {} if config is None else config.configuration()
    in_code_limits: dict[str, int] = in_code.get("limits") or {}
    given: Mapping[str, Any] = settings.get("given", {})
    has_other_cap = given.get("concurrency.cluster_wide_cap", {}).get("kind") in ("flag", "environment")
    limits.update({group: limit for group, limit in in_code_limits.items() if group != "cluster" or not has_other_cap})
    per_key: dict[str, Registered] = {}
    for task in tasks:
        limit, group = task.options.max_concurrent_per_key, f"{task.options.group or task.name}/*"
        if limit is None:
            continue
        other = per_key.setdefault(group, task)
        if other.options.max_concurrent_per_key != limit:
            rule = f"{other.name}, of the same group, says {other.options.max_concurrent_per_key}"
            raise Invalid.of(f"{task.name}.max_concurrent_per_key", limit, rule)
        # The file beats the code.
        limits.setdefault(group, limit)
    merged["limits"] = limits
    merged["queue_priorities"] = {**(merged.get("queue_priorities") or {}), **(in_code.get("queue_priorities") or {})}
    merged["schedules"] = _schedules(merged.get("schedules") or {}, schedules)
    return merged


_USUAL_SCHEDULE: dict[str, Any] = {
    "timezone": "UTC",
    "payload": "null",
    "queue": "default",
    "priority": 0,
    "max_attempts": 3,
    "timeout_ms": None,
    "missed": "latest",
    "overlap": False,
}


def _schedules(in_file: Mapping[str, Any], in_code: Mapping[str, Any]) -> dict[str, Any]:
    for name, schedule in in_code.items():
        other = in_file.get(name)
        if other is not None and {**_USUAL_SCHEDULE, **other} != {**_USUAL_SCHEDULE, **schedule}:
            rule = f"[schedules.{name}] of the file says otherwise: leave one of them out"
            raise Invalid.of(f"schedules.{name}", schedule["cron"], rule)
    return {**in_file, **in_code}


def task_list(settings: Mapping[str, Any], registered: Iterable[Registered]) -> list[dict[str, Any]]:
    """Describe the tasks of a worker. `[tasks.NAME]` of the file beats the code."""
    in_file = {task["task"]: task for task in settings.get("tasks", ())}
    programs = {program["options"]["task"] for program in settings.get("programs", ())}
    found: list[dict[str, Any]] = []
    for task in registered:
        if task.name in programs:
            raise Invalid.of(
                "task", task.name, "is a program in the file and a function in the code: name one otherwise"
            )
        options = task.options.described(task.name)
        for name in ("group", "timeout_ms", "retry"):
            value = in_file.get(task.name, {}).get(name)
            if value is not None:
                options[name] = value
        found.append({"options": options, "is_sync": not task.is_async})
    return found


def is_same_store(one: str, other: str) -> bool:
    """Whether two URLs name the same place."""

    def place(url: str) -> str:
        return f"file:{os.path.abspath(url[5:])}" if url.startswith("file:") else url  # noqa: PTH100

    return place(text("store", one)) == place(other)
