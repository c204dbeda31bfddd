"""Database connections of Django, checked around every job as Django checks them around a request."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator


def close_old_connections(_context: object) -> Generator[None, None, None]:
    """Close the thread's connections that are unusable or too old, before a `def` handler and after it.

    A connection inside a transaction is left alone, so a test may run jobs in its own.
    """
    if _is_in_loop():
        # Around an `async def` handler. Its queries run in another thread.
        yield
        return
    close: Any = import_module("django.db").close_old_connections
    close()
    try:
        yield
    finally:
        close()


async def close_old_connections_async(_context: object) -> AsyncGenerator[None, None]:
    """Do the same around an `async def` handler, in the thread where Django runs its queries."""
    close: Any = import_module("asgiref.sync").sync_to_async(import_module("django.db").close_old_connections)
    await close()
    try:
        yield
    finally:
        await close()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
