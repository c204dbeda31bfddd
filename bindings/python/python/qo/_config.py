"""The configuration of an app in code: queues, caps and prefetching.

The same settings can stand in `.qo.toml`. A key that both set must have one value.
"""

from __future__ import annotations

import enum
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ._errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIMIT = 1_000_000
QUEUE_PRIORITY = 1_000
CLAIM = 10_000
LEASE_MS = (100, 86_400_000)
STORES = ("file:", "memory:", "postgres://", "postgresql://", "s3://", "http://", "https://")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class QueueMode(enum.Enum):
    """Which queues an app configures."""

    DEFAULT = "default"
    """None: its jobs are in `default`, or in queues that need no configuration."""
    CUSTOM = "custom"
    """Those in `custom_queues`, each with a priority and, if it has one, a limit."""


@dataclass(frozen=True)
class CustomQueueConfig:
    """A queue. `AppConfig` checks it."""

    name: str
    priority: int = 100
    """1 to 1000: workers claim from the queue with the lowest number first."""
    max_concurrency: int | None = None
    """How many of its jobs run at once, in the whole fleet. None: any number. 0: none starts."""


@dataclass(frozen=True)
class PostgresConfig:
    """A store in PostgreSQL.

    >>> PostgresConfig(database_url="postgresql+psycopg://shop:secret@db/shop", schema="jobs")
    PostgresConfig('postgresql://shop:***@db/shop?schema=jobs')
    """

    database_url: str
    """`postgres://…` or `postgresql://…`. The name of a driver in it, as SQLAlchemy writes it, is left out."""
    schema: str | None = None
    """The schema that qo's tables are in. Defaults to the URL's `schema`, else `qo`."""

    @property
    def url(self) -> str:
        """The URL of the store."""
        url = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", self.database_url)
        return url if self.schema is None else f"{url}{'&' if '?' in url else '?'}schema={self.schema}"

    def __repr__(self) -> str:
        return f"PostgresConfig({without_password(self.url)!r})"


@dataclass(frozen=True)
class AppConfig:
    """The configuration of an app. Every mistake in it is an `Invalid`, and all of them are in its message.

    >>> config = AppConfig(
    ...     queue_mode=QueueMode.CUSTOM,
    ...     custom_queues=[
    ...         CustomQueueConfig(name="stripe", priority=1, max_concurrency=3),
    ...         CustomQueueConfig(name="reports", max_concurrency=2),
    ...     ],
    ...     cluster_wide_cap=15,
    ...     broker="postgres://db/shop",
    ... )
    >>> config.configuration()["limits"]
    {'cluster': 15, 'queue:stripe': 3, 'queue:reports': 2}
    >>> AppConfig(cluster_wide_cap=15, prefetch_buffer=4)
    Traceback (most recent call last):
        ...
    qo.Invalid: 2 mistakes in AppConfig:
      prefetch_buffer: 4: needs claim_lease_ms: how long a claimed job may wait for its start
      cluster_wide_cap: 15: goes with hard mode only: set prefetch_buffer, which is 4, to 0
    """

    queue_mode: QueueMode = QueueMode.DEFAULT
    custom_queues: Sequence[CustomQueueConfig] = ()
    """The queues of `QueueMode.CUSTOM`."""
    cluster_wide_cap: int | None = None
    """How many jobs run at once in the whole fleet. None: any number. 0: none starts."""
    prefetch_buffer: int | None = None
    """How many jobs a worker holds beyond those that run. 0, the default, is hard mode: claiming is starting."""
    claim_lease_ms: int | None = None
    """How long a worker may hold a job that it has not started. Goes with `prefetch_buffer`, and only with it."""
    broker: PostgresConfig | str | None = field(default=None, repr=False)
    """The store, or its URL. None: `.qo.toml` and the environment say it."""

    def __post_init__(self) -> None:
        fail("mistakes in AppConfig", list(_mistakes(self)))

    @property
    def store(self) -> str | None:
        """The URL of the store; None if it stands elsewhere."""
        return self.broker.url if isinstance(self.broker, PostgresConfig) else self.broker

    def configuration(self) -> dict[str, Any]:
        """Return what a worker pushes to the store: limits and the priorities of queues."""
        limits: dict[str, int] = {}
        if self.cluster_wide_cap is not None:
            limits["cluster"] = self.cluster_wide_cap
        for queue in self.custom_queues:
            if queue.max_concurrency is not None:
                limits[f"queue:{queue.name}"] = queue.max_concurrency
        return {"limits": limits, "queue_priorities": {queue.name: queue.priority for queue in self.custom_queues}}

    def worker(self) -> dict[str, Any]:
        """Return how a worker claims, as far as it is set here."""
        said = {"prefetch_buffer": self.prefetch_buffer, "claim_lease_ms": self.claim_lease_ms}
        return {name: value for name, value in said.items() if value is not None}

    def check_against(self, settings: Mapping[str, Any]) -> None:
        """Raise `Invalid` if the file of these settings sets a key of this configuration to another value.

        The environment and flags may: they come before the file and before code.
        """
        given: Mapping[str, Mapping[str, Any]] = settings.get("given", {})
        found: list[Invalid] = []
        for ours, value, names in self._settings():
            for name in names:
                theirs = given.get(name)
                if theirs is None or theirs.get("kind") != "file":
                    continue
                is_same = _same_store(value, settings["store"]) if name == "store" else theirs["value"] == value
                if not is_same:
                    shown = without_password(value) if name == "store" else value
                    rule = f"{theirs['source']} sets {name} = {json.dumps(theirs['value'])}: leave one of them out"
                    found.append(Invalid.of(f"AppConfig.{ours}", shown, rule))
        fail("settings are different in AppConfig and in the file", found)

    def _settings(self) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
        """Each key that is set here: its name here, its value, and its names in a file."""
        if self.store is not None:
            yield "broker", self.store, ("store",)
        if self.cluster_wide_cap is not None:
            names = ("concurrency.cluster_wide_cap", "concurrency.limits.cluster")
            yield "cluster_wide_cap", self.cluster_wide_cap, names
        for name, value in self.worker().items():
            yield name, value, (f"worker.{name}",)
        for index, queue in enumerate(self.custom_queues):
            place, name = f"custom_queues[{index}]", queue.name if "." not in queue.name else f'"{queue.name}"'
            yield f"{place}.priority", queue.priority, (f"queues.{name}.priority",)
            if queue.max_concurrency is not None:
                names = (f"queues.{name}.max_concurrency", f'concurrency.limits."queue:{queue.name}"')
                yield f"{place}.max_concurrency", queue.max_concurrency, names


def fail(what: str, mistakes: list[Invalid]) -> None:
    """Raise one error that lists all mistakes. One stands for itself."""
    if len(mistakes) == 1:
        raise mistakes[0]
    if mistakes:
        listed = "".join(f"\n  {mistake}" for mistake in mistakes)
        first = mistakes[0]
        raise Invalid(f"{len(mistakes)} {what}:{listed}", path=first.path, value=first.value, rule=first.rule)


def without_password(url: str) -> str:
    """Return a URL for people to see. A password may contain any character: all before the last `@` is hidden."""
    url = re.sub(r"(password[^=&]*=)[^&]*", r"\1***", url)
    return re.sub(r"(://[^:@/]*):.*@", r"\1:***@", url)


def _same_store(ours: str, theirs: str) -> bool:
    def place(url: str) -> str:
        return f"file:{os.path.abspath(url[5:])}" if url.startswith("file:") else url  # noqa: PTH100

    return place(ours) == place(theirs)


def _mistakes(config: AppConfig) -> Iterator[Invalid]:
    """Find every mistake. Not every caller has a type checker: a value may be anything."""
    yield from _mistakes_of_queues(config.queue_mode, config.custom_queues)
    wrong = [
        *_number("cluster_wide_cap", config.cluster_wide_cap, 0, LIMIT),
        *_number("prefetch_buffer", config.prefetch_buffer, 0, CLAIM),
        *_number("claim_lease_ms", config.claim_lease_ms, *LEASE_MS),
    ]
    yield from wrong or _mistakes_of_prefetch(config)
    yield from _mistakes_of_broker(config.broker)


def _mistakes_of_prefetch(config: AppConfig) -> Iterator[Invalid]:
    buffer, lease_ms, cap = config.prefetch_buffer or 0, config.claim_lease_ms, config.cluster_wide_cap
    if buffer and lease_ms is None:
        rule = "needs claim_lease_ms: how long a claimed job may wait for its start"
        yield Invalid.of("prefetch_buffer", buffer, rule)
    if not buffer and lease_ms is not None:
        rule = "is only for jobs that are claimed ahead of time: set prefetch_buffer too"
        yield Invalid.of("claim_lease_ms", lease_ms, rule)
    if buffer and cap is not None:
        rule = f"goes with hard mode only: set prefetch_buffer, which is {buffer}, to 0"
        yield Invalid.of("cluster_wide_cap", cap, rule)


def _mistakes_of_queues(mode: object, queues: object) -> Iterator[Invalid]:
    if not isinstance(queues, Sequence) or isinstance(queues, str):
        yield Invalid.of("custom_queues", queues, "must be a list of CustomQueueConfig")
        return
    listed = cast("Sequence[object]", queues)
    if not isinstance(mode, QueueMode):
        yield Invalid.of("queue_mode", mode, "must be QueueMode.DEFAULT or QueueMode.CUSTOM")
    elif mode is QueueMode.CUSTOM and not listed:
        yield Invalid.of("custom_queues", listed, "QueueMode.CUSTOM needs at least one queue")
    elif mode is QueueMode.DEFAULT and listed:
        yield Invalid.of("custom_queues", listed, "goes with queue_mode=QueueMode.CUSTOM only")
    names: set[str] = set()
    for index, queue in enumerate(listed):
        place = f"custom_queues[{index}]"
        if not isinstance(queue, CustomQueueConfig):
            yield Invalid.of(place, queue, "must be a CustomQueueConfig")
            continue
        if not _is_name(queue.name):
            yield Invalid.of(f"{place}.name", queue.name, f"must match {NAME.pattern} and must not be cluster")
        elif queue.name in names:
            yield Invalid.of(f"{place}.name", queue.name, "is the name of another queue in the list")
        else:
            names.add(queue.name)
        yield from _number(f"{place}.priority", queue.priority, 1, QUEUE_PRIORITY, is_needed=True)
        yield from _number(f"{place}.max_concurrency", queue.max_concurrency, 0, LIMIT)


def _mistakes_of_broker(broker: object) -> Iterator[Invalid]:
    if isinstance(broker, PostgresConfig):
        if not _begins_with(broker.database_url, ("postgres://", "postgresql://", "postgres+", "postgresql+")):
            shown = without_password(str(broker.database_url))
            yield Invalid.of("broker.database_url", shown, "must begin with postgres:// or postgresql://")
    elif broker is not None and not _begins_with(broker, STORES):
        rule = f"must be a PostgresConfig or the URL of a store, which begins with {', '.join(STORES)}"
        yield Invalid.of("broker", without_password(broker) if isinstance(broker, str) else broker, rule)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None and value != "cluster"


def _begins_with(value: object, beginnings: tuple[str, ...]) -> bool:
    return isinstance(value, str) and value.startswith(beginnings)


def _number(path: str, value: object, least: int, most: int, *, is_needed: bool = False) -> Iterator[Invalid]:
    if value is None and not is_needed:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        yield Invalid.of(path, value, f"must be a whole number from {least} to {most}")
