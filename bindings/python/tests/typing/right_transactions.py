"""Transactions, tests and Django, used rightly, and the types that type checkers infer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import qo
import qo.django
import qo.sync
import qo.testing
from typing_extensions import assert_type

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

app = qo.App("postgres://db/shop")


@app.task
async def ship(order: int, note: str = "") -> str:
    return f"{order}: {note}"


def without_asyncio(
    connection: psycopg.Connection[Any],
    cursor: psycopg.Cursor[Any],
    sqlalchemy: Connection,
    session: Session,
    scoped: scoped_session[Session],
) -> None:
    assert_type(ship.submit_in(connection, 7), qo.sync.JobHandle[str])
    assert_type(ship.submit_in(cursor, 7, note="a"), qo.sync.JobHandle[str])
    assert_type(ship.submit_in(sqlalchemy, 7), qo.sync.JobHandle[str])
    assert_type(ship.submit_in(session, 7), qo.sync.JobHandle[str])
    assert_type(ship.submit_in(scoped, order=7), qo.sync.JobHandle[str])
    assert_type(ship.submit_in("default", 7), qo.sync.JobHandle[str])
    assert_type(ship.options(on_limit="skip").submit_in(connection, 7), qo.sync.JobHandle[str] | None)
    qo.django.submit_on_commit(ship, 7, note="a")
    qo.django.submit_on_commit(ship.options(key="customer-7"), order=7)


async def with_asyncio(
    connection: psycopg.AsyncConnection[Any],
    cursor: psycopg.AsyncCursor[Any],
    sqlalchemy: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
) -> None:
    assert_type(await ship.submit_in(connection, 7), qo.JobHandle[str])
    assert_type(await ship.submit_in(cursor, 7, note="a"), qo.JobHandle[str])
    assert_type(await ship.submit_in(sqlalchemy, 7), qo.JobHandle[str])
    assert_type(await ship.submit_in(session, 7), qo.JobHandle[str])
    assert_type(await ship.submit_in(scoped, order=7), qo.JobHandle[str])
    assert_type(await ship.options(on_limit="skip").submit_in(connection, 7), qo.JobHandle[str] | None)


async def in_a_test(own: qo.testing.TestApp) -> None:
    assert_type(await own.drain(), qo.testing.Drained)
    assert_type(own.drain_sync(timeout=1).check().failed, list[qo.testing.Ran])
    with qo.testing.replaced(app) as test:
        assert_type((await test.drain())[0], qo.testing.Ran)
        test.clock.move(hours=1)
