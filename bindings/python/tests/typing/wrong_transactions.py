"""Transactions and tests, used wrongly. Each line with `wrong` is one that both type checkers must report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import qo
import qo.django
import qo.testing

if TYPE_CHECKING:
    import psycopg

app = qo.App("postgres://db/shop")


@app.task
async def ship(order: int) -> str:
    return f"{order}"


async def wrong(connection: psycopg.Connection[Any], later: psycopg.AsyncConnection[Any]) -> None:
    ship.submit_in(connection, "seven")  # wrong
    ship.submit_in(connection)  # wrong
    ship.submit_in(connection, 7, colour="red")  # wrong
    ship.submit_in(7, 7)  # wrong
    await ship.submit_in(connection, 7)  # wrong
    await ship.submit_in(later, 7).result()  # wrong
    await ship.submit_in(later, "seven")  # wrong
    qo.django.submit_on_commit(ship, "seven")  # wrong
    qo.django.submit_on_commit(7)  # wrong
    app.drain()  # wrong
    qo.testing.TestApp().clock.move(moons=1)  # wrong
