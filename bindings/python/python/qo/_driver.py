"""Connections of other packages: one statement on each of them, in the transaction that is open there.

No package is imported unless one of its objects is passed.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ._errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class SyncConnection(Protocol):
    """A connection of psycopg 3, SQLAlchemy or Django; a cursor of psycopg 3; a session of SQLAlchemy."""

    @property
    def close(self) -> Callable[..., None]:
        """Every one of them can be closed at once."""
        ...


class AsyncConnection(Protocol):
    """An async connection of psycopg 3, SQLAlchemy or asyncpg; an async cursor or session of the first two."""

    @property
    def close(self) -> Callable[..., Awaitable[Any]]:
        """Every one of them has to be awaited to close it."""
        ...


@dataclass(frozen=True)
class Driver:
    """How a connection is asked: `ask(query, value)` returns the one text of the answer, or awaits it.

    In the query `{}` stands where the value belongs.
    """

    is_async: bool
    ask: Callable[[str, str], Any]


def driver_of(connection: object) -> Driver:
    """Find out how a connection is asked. `Invalid` if it is none, or not one to PostgreSQL."""
    if isinstance(connection, str):
        return _django(_alias(connection))
    packages = {of.__module__.partition(".")[0] for of in type(connection).__mro__}
    for package, made in _DRIVERS.items():
        if package in packages:
            driver = made(connection)
            if driver is not None:
                return driver
    raise _strange(connection)


def is_async(connection: object) -> bool:
    """Whether what is asked of a connection must be awaited. A stand-in of a test counts by its `close`."""
    try:
        return driver_of(connection).is_async
    except Invalid:
        return inspect.iscoroutinefunction(getattr(connection, "close", None))


def _strange(connection: object) -> Invalid:
    rule = (
        "must be a connection or cursor of psycopg 3, a connection or session of SQLAlchemy, a connection of asyncpg, "
        "or a connection of Django or its alias"
    )
    return Invalid.of("connection", _name(connection), rule)


def _name(connection: object) -> str:
    of = type(connection)
    return f"{of.__module__}.{of.__qualname__}"


def _check_is_postgresql(dialect: str) -> None:
    if dialect != "postgresql":
        raise Invalid.of("connection", dialect, "must be a connection to the PostgreSQL database that has the jobs")


def _psycopg(connection: Any) -> Driver | None:
    psycopg = import_module("psycopg")
    if isinstance(connection, (psycopg.Cursor, psycopg.AsyncCursor)):
        connection = connection.connection
    rows = import_module("psycopg.rows").tuple_row
    # Cursors of its own: the connection's may write rows and parameters in another way.
    if isinstance(connection, psycopg.AsyncConnection):

        async def ask_async(query: str, value: str) -> Any:
            async with psycopg.AsyncCursor(connection, row_factory=rows) as cursor:
                await cursor.execute(query.format("%s"), [value])
                return (await cursor.fetchone())[0]

        return Driver(is_async=True, ask=ask_async)
    if isinstance(connection, psycopg.Connection):

        def ask(query: str, value: str) -> Any:
            with psycopg.Cursor(connection, row_factory=rows) as cursor:
                cursor.execute(query.format("%s"), [value])
                return cursor.fetchone()[0]

        return Driver(is_async=False, ask=ask)
    return None


def _asyncpg(connection: Any) -> Driver | None:
    if not hasattr(connection, "fetchval") or not hasattr(connection, "is_in_transaction"):
        return None

    async def ask(query: str, value: str) -> Any:
        return await connection.fetchval(query.format("$1"), value)

    return Driver(is_async=True, ask=ask)


def _sqlalchemy(connection: Any) -> Driver | None:
    text = import_module("sqlalchemy").text
    if any(of.__module__.startswith("sqlalchemy.ext.asyncio") for of in type(connection).__mro__):
        asyncio = import_module("sqlalchemy.ext.asyncio")
        if not isinstance(connection, (asyncio.AsyncConnection, asyncio.AsyncSession, asyncio.async_scoped_session)):
            return None

        async def ask_async(query: str, value: str) -> Any:
            is_session = not isinstance(connection, asyncio.AsyncConnection)
            asked = await connection.connection() if is_session else connection
            _check_is_postgresql(asked.dialect.name)
            return (await asked.execute(text(query.format(":value")), {"value": value})).scalar_one()

        return Driver(is_async=True, ask=ask_async)
    orm = import_module("sqlalchemy.orm")
    plain = import_module("sqlalchemy.engine").Connection
    if not isinstance(connection, (plain, orm.Session, orm.scoped_session)):
        return None

    def ask(query: str, value: str) -> Any:
        asked = connection if isinstance(connection, plain) else connection.connection()
        _check_is_postgresql(asked.dialect.name)
        return asked.execute(text(query.format(":value")), {"value": value}).scalar_one()

    return Driver(is_async=False, ask=ask)


def _alias(alias: str) -> Any:
    try:
        connections = import_module("django.db").connections
    except ImportError:
        raise Invalid.of("connection", alias, "is the alias of a Django connection, and there is no Django") from None
    if alias not in connections.settings:
        rule = f"must be the alias of a Django connection: there are {', '.join(sorted(connections.settings))}"
        raise Invalid.of("connection", alias, rule)
    return connections[alias]


def _django(connection: Any) -> Driver:
    if not hasattr(connection, "vendor") or not hasattr(connection, "cursor"):
        raise _strange(connection)
    _check_is_postgresql(connection.vendor)

    def ask(query: str, value: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(query.format("%s"), [value])
            return cursor.fetchone()[0]

    return Driver(is_async=False, ask=ask)


_DRIVERS: dict[str, Callable[[Any], Driver | None]] = {
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
}
