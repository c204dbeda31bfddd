"""Slots of a group for work that is not a job."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

from ._call import Question, answer, answer_sync, refuse_in_loop
from ._errors import LimitReached, QoError, from_json
from ._options import milliseconds, number, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from . import _qo
    from ._namespace import Namespace
    from ._options import Length


_NUMBERS = itertools.count(1)
"""Requests for slots are numbered, so that one can be given up whatever became of it."""


class Slot:
    """Slots of a group that the block of a `with` or `async with` holds.

    They share the group's limit with its jobs. The lease is renewed on threads of their own. If they are lost all the
    same (an operator took them, the store could not be reached for too long), another program may have them:

    - the block of an `async with` is cancelled, and `async with` raises why;
    - the block of a `with` looks at `lost`, or calls `raise_if_lost()`; at its end `with` raises why.

    >>> import qo.sync
    >>> client = qo.sync.connect("memory:")
    >>> with client.slot("deploy", limit=1) as slot:
    ...     client.concurrency.status("deploy").active, slot.lost
    (1, False)
    >>> client.concurrency.status("deploy").active
    0
    """

    def __init__(
        self,
        namespace: Namespace,
        group: str,
        *,
        limit: int | None = None,
        slots: int = 1,
        holder: str | None = None,
        lease: Length = 30.0,
        wait: bool = True,
        timeout: Length | None = None,
    ) -> None:
        self.group = text("group", group)
        self._namespace = namespace
        self._number = next(_NUMBERS)
        self._request = {
            "number": self._number,
            "group": group,
            "slots": number("slots", slots, 1),
            "limit": None if limit is None else number("limit", limit),
            "holder": None if holder is None else text("holder", holder),
            "lease_ms": milliseconds("lease", lease),
            "wait": bool(wait),
        }
        self._seconds = None if timeout is None else milliseconds("timeout", timeout) / 1000
        self._token: int | None = None
        self._watch: _qo.Pending | None = None
        # The task whose block was cancelled because the slots were lost.
        self._cancelled: asyncio.Task[Any] | None = None

    @property
    def token(self) -> int:
        """The fence token: send it along, so that a place can refuse writes with an older one."""
        if self._token is None:
            raise RuntimeError(f"the slots of {self.group} are held inside the block of with")
        return self._token

    @property
    def lost(self) -> bool:
        """Whether another program may have the slots: stop what they were for."""
        return self._why_lost() is not None

    def raise_if_lost(self) -> None:
        """Raise `Fenced`, with the reason, if the slots are lost."""
        why = self._why_lost()
        if why is not None:
            raise why

    def _why_lost(self) -> QoError | None:
        answered = None if self._watch is None else self._watch.answer()
        return None if answered is None else from_json(answered[1])

    def _asked(self) -> Question:
        if self._token is not None:
            raise RuntimeError(f"the slots of {self.group} are held already: make another with client.slot(…)")
        return self._namespace.ask("acquire", self._request, self._seconds)

    def _took(self, granted: dict[str, int] | None) -> _qo.Pending:
        if granted is None:
            raise LimitReached(f"{self.group}: no slot is free now", path="group", value=repr(self.group))
        self._token = granted["token"]
        self._watch = self._namespace.connection.call("lost", json.dumps(self._number))
        return self._watch

    def _late(self) -> TimeoutError:
        return TimeoutError(f"{self.group}: no slot was free within {self._seconds} s")

    def _given_back(self) -> Question:
        watch = self._watch
        assert watch is not None, "the block holds and watches them"  # noqa: S101
        self._token = self._watch = None
        watch.abort()
        return self._namespace.ask("release_slots", self._number)

    def _give_up(self) -> None:
        """Give back what may have been granted, without waiting for it."""
        given_up, self._number = self._number, next(_NUMBERS)
        self._request["number"] = self._number
        self._namespace.connection.call("release_slots", json.dumps(given_up))

    def __enter__(self) -> Self:
        refuse_in_loop()
        asked = self._asked()
        try:
            self._took(answer_sync(*asked))
        except TimeoutError:
            self._give_up()
            raise self._late() from None
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        why = self._why_lost()
        answer_sync(*self._given_back())
        if why is not None and error is None:
            raise why

    async def __aenter__(self) -> Self:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        asked = self._asked()
        try:
            watch = self._took(await answer(*asked))
        except TimeoutError:
            self._give_up()
            raise self._late() from None
        except BaseException:
            self._give_up()
            raise
        self._cancelled = None

        def lost() -> None:
            if self._watch is watch and task is not None and watch.answer() is not None:
                self._cancelled = task
                task.cancel()

        watch.when_done(loop.call_soon_threadsafe, lost)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        why = self._why_lost()
        cancelled, self._cancelled = self._cancelled, None
        is_ours = cancelled is not None and isinstance(error, asyncio.CancelledError)
        uncancel: Callable[[], int] | None = getattr(cancelled, "uncancel", None)
        if uncancel is not None:
            # If the block was cancelled for another reason as well, that one counts.
            is_ours = uncancel() <= 0 and is_ours
        try:
            await answer(*self._given_back())
        except asyncio.CancelledError:
            # That call may have been dropped before it began.
            self._give_up()
            raise
        if why is not None and (error is None or is_ours):
            raise why from None

    def __repr__(self) -> str:
        return f"<Slot of {self.group}>" if self._token is None else f"<Slot of {self.group}, token {self._token}>"
