"""Limits of groups, and what holds their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ._call import Async, call
from ._errors import Invalid, NotFound
from ._options import group as group_name
from ._options import job_id, milliseconds, name, number, text
from ._views import ConcurrencyStatus, HeldSlot, moment

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from ._call import Steps
    from ._namespace import Namespace
    from ._options import Length


def _status(namespace: Namespace, group: str) -> Steps[ConcurrencyStatus]:
    try:
        return ConcurrencyStatus.read((yield namespace.ask("group", group)))
    except NotFound:
        return ConcurrencyStatus(group=group, limit=None, active=0, live=0, source=None)


class ConcurrencyCalls:
    """What `client.concurrency` does."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    @call
    def status(self, group: str) -> Steps[ConcurrencyStatus]:
        """Look at a group: `GROUP`, `GROUP/KEY`, `queue:NAME` or `cluster`.

        A group without a limit and without jobs is empty, not an error.
        """
        return (yield from _status(self._namespace, group))

    @call
    def set(self, group: str, limit: int) -> Steps[None]:
        """Set the limit of a group, in the whole fleet. It counts at once; `GROUP/*` sets that of every key."""
        yield self._namespace.ask("set_limit", [text("group", group), number("limit", limit)])

    @call
    def unset(self, group: str) -> Steps[bool]:
        """Take back the limit that `set` has set. Returns whether there was one."""
        was_set: bool = yield self._namespace.ask("unset_limit", group)
        return was_set

    @call
    def release(self, group: str, slot_id: int) -> Steps[None]:
        """Take a slot away from its holder, which is told to stop. `slot_id` is that of `SlotInfo`."""
        yield self._namespace.ask("release_slot", [text("group", group), number("slot_id", slot_id, 0, 1 << 63)])


class Concurrency(ConcurrencyCalls, Async):
    """Limits, and what holds their slots."""


class HasNamespace(Protocol):
    """A client."""

    @property
    def namespace(self) -> Namespace:
        """The namespace that it looks at."""
        ...


class ManagerCalls:
    """What `ConcurrencyManager` does."""

    def __init__(self, client: HasNamespace) -> None:
        """Take and give back slots in the namespace of a client."""
        self._namespace = client.namespace

    @call
    def try_acquire(
        self,
        group: str,
        limit: int,
        task_id: UUID | str,
        worker_id: str,
        lease_duration: Length = 30.0,
    ) -> Steps[HeldSlot | None]:
        """Take a slot of a group. None if there is no room.

        `limit` counts where no other limit is set. `task_id` is an id of your own: the same one gets the same slot
        again, so a call whose answer was lost may be made again. `worker_id` is a label for people.
        """
        asked = {
            "group": group_name("group", group),
            "limit": number("limit", limit),
            "task_id": job_id("task_id", task_id),
            "worker_id": name("worker_id", worker_id),
            "lease_ms": milliseconds("lease_duration", lease_duration),
        }
        told: dict[str, Any] | None = yield self._namespace.ask("try_acquire", asked)
        return None if told is None else HeldSlot.read(told)

    @call
    def release(self, slot: HeldSlot) -> Steps[None]:
        """Give a slot back. Raises `Fenced` if it is not held any more."""
        yield self._namespace.ask("return_slot", _held(slot))

    @call
    def extend_lease(self, slot: HeldSlot, lease_duration: Length = 30.0) -> Steps[datetime]:
        """Hold a slot for `lease_duration` from now, and return the end of its lease.

        Raises `Fenced` if it is not held any more: stop what it was for.
        """
        lease_ms = milliseconds("lease_duration", lease_duration)
        ends: int = yield self._namespace.ask("extend_slot", [_held(slot), lease_ms])
        return moment(ends)

    @call
    def cleanup_expired(self) -> Steps[int]:
        """Free the slots of programs whose lease is over, in all groups, and return how many there were.

        It only tidies up: a call that wants such a slot gets it anyway.
        """
        freed: int = yield self._namespace.ask("cleanup_expired")
        return freed

    @call
    def get_status(self, group: str) -> Steps[ConcurrencyStatus]:
        """Look at a group: its limit, and who holds its slots. A group without either is empty, not an error."""
        return (yield from _status(self._namespace, group))


def _held(slot: object) -> dict[str, Any]:
    if not isinstance(slot, HeldSlot):
        raise Invalid.of("slot", slot, "must be what try_acquire returned")
    ends = round(slot.expires_at.timestamp() * 1000)
    return {**vars(slot), "expires_at": ends}


class ConcurrencyManager(ManagerCalls, Async):
    """Slots for programs that are not jobs, in five calls. You extend the lease yourself; `client.slot(…)` does it for
    you.

    >>> import asyncio, uuid, qo
    >>> async def main() -> None:
    ...     manager = qo.ConcurrencyManager(await qo.connect("memory:"))
    ...     slot = await manager.try_acquire("gpu", 1, uuid.uuid4(), "render-7", lease_duration=30)
    ...     print(slot is not None, await manager.try_acquire("gpu", 1, uuid.uuid4(), "render-8"))
    ...     await manager.release(slot)
    >>> asyncio.run(main())
    True None
    """  # noqa: D205
