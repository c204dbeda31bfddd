"""Calls that are wrong. Each line with `wrong` is one that both type checkers must report; no other is."""

from __future__ import annotations

from typing import Any

import qo
import qo.sync

app = qo.App("memory:")
shop = qo.sync.App("memory:")


@app.task
async def bare(number: int) -> str:
    return str(number)


@app.task(max_concurrent=3)
async def with_context(ctx: qo.Context, url: str, *, tries: int = 1) -> int:
    return tries


@app.task
def plain(name: str) -> int:
    return 1


@shop.task
def of_sync(name: str) -> int:
    return 1


async def arguments() -> None:
    await bare.submit("1")  # wrong
    await bare.submit()  # wrong
    await bare.submit(1, 2)  # wrong
    await bare.submit(nummer=1)  # wrong
    await with_context.submit(qo.current(), "a")  # wrong
    await with_context.submit("a", 2)  # wrong
    await with_context.submit(url=1)  # wrong
    await plain.submit(name=None)  # wrong
    plain.submit_sync(1)  # wrong
    bare.job("1")  # wrong
    await bare.options(key="a").submit("1")  # wrong
    await bare.options(on_limit="skip").submit("1")  # wrong
    of_sync.submit(1)  # wrong
    await of_sync.submit("a")  # wrong
    of_sync.submit_sync("a")  # wrong


async def options() -> None:
    bare.options(prio=3)  # wrong
    bare.options(key=3)  # wrong
    bare.options(on_limit="drop")  # wrong
    bare.options(delay="3s")  # wrong
    app.task(max_concurent=3)  # wrong
    app.task(timeout="3s")  # wrong
    app.task(retry_on=("OSError",))  # wrong
    app.schedule("@daily", time_zone="UTC")  # wrong
    app.schedule("@daily", missed="never")  # wrong
    qo.Tasks(max_concurrent=3)  # wrong
    await app.run(processes=3)  # wrong
    await app.run(queues=3)  # wrong
    qo.Backoff(bas=3)  # wrong


async def results() -> None:
    handle = await bare.submit(1)
    number: int = await handle.result()  # wrong
    handle.result().upper()  # wrong
    await handle.result(timeout="3")  # wrong
    maybe = await bare.options(on_limit="skip").submit(1)
    await maybe.result()  # wrong
    await bare.submit_sync(1).result()  # wrong
    client = await qo.connect("memory:")
    await client.jobs(state="failed")  # wrong
    await client.jobs(states=["broken"])  # wrong
    await client.submit("a", on_limit="skip").result()  # wrong
    await client.workflow("w").submit(bare, "1")  # wrong
    await client.workflow("w", on_failure="stop").status()  # wrong
    await client.concurrency.set("a", "3")  # wrong
    await qo.ConcurrencyManager(client).release("gpu")  # wrong
    async with client.slot("a", limit="3"):  # wrong
        pass
    _: Any = number


def of_lifespan(app: qo.App) -> None: ...


qo.App("memory:", lifespan=of_lifespan)  # wrong
qo.App(3)  # wrong
