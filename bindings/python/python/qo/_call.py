"""Calls of the store, from an event loop or from a thread."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from ._errors import from_json

if TYPE_CHECKING:
    from ._qo import Pending


def _read(answer: tuple[bool, str]) -> Any:
    is_good, text = answer
    if not is_good:
        raise from_json(text)
    return json.loads(text)


async def answer(pending: Pending) -> Any:
    """Wait for an answer in an event loop, any event loop."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def told() -> None:
        if not done.done():
            done.set_result(None)

    pending.when_done(loop.call_soon_threadsafe, told)
    try:
        await done
    except asyncio.CancelledError:
        pending.abort()
        raise
    found = pending.answer()
    assert found is not None, "it was told"  # noqa: S101
    return _read(found)


def answer_sync(pending: Pending, seconds: float | None = None) -> Any:
    """Wait for an answer in this thread, which must not run an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _read(pending.wait(seconds))
    msg = "this thread runs an event loop: await the call without sync instead"
    raise RuntimeError(msg)
