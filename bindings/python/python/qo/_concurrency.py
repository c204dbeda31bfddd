"""Limits of groups, and what holds their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._call import Async, call
from ._errors import NotFound
from ._options import number, text
from ._views import ConcurrencyStatus

if TYPE_CHECKING:
    from ._call import Steps
    from ._namespace import Namespace


class ConcurrencyCalls:
    """What `client.concurrency` does."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    @call
    def status(self, group: str) -> Steps[ConcurrencyStatus]:
        """Look at a group: `GROUP`, `GROUP/KEY`, `queue:NAME` or `cluster`.

        A group without a limit and without jobs is empty, not an error.
        """
        try:
            return ConcurrencyStatus.read((yield self._namespace.ask("group", group)))
        except NotFound:
            return ConcurrencyStatus(group=group, limit=None, active=0, live=0, source=None)

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
