"""Calls that are right. Type checkers find nothing here, and the types that are asserted are those that they infer."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import qo
import qo.sync
from typing_extensions import assert_type

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator


@asynccontextmanager
async def lifespan(app: qo.App) -> AsyncGenerator[None, None]:
    app.state.pool = object()
    yield


app = qo.App("memory:", name="shop", lifespan=lifespan)
router = qo.Tasks(queue="mail", max_attempts=5)


@app.task
async def bare(number: int) -> str:
    return str(number)


@app.task
async def with_context(ctx: qo.Context, url: str, *, tries: int = 1) -> dict[str, int]:
    return {url: tries, "attempt": ctx.attempt}


@app.task
def plain(name: str) -> float | None:
    return None


@app.task()
def plain_with_context(ctx: qo.Context, name: str) -> list[int]:
    return []


@app.schedule("0 3 * * *", timezone="Europe/Berlin", arguments={"region": "eu"})
@app.task("nightly", max_concurrent=1, backoff=qo.Backoff(base=5), retry_on=(OSError,), fail_on=ValueError)
async def nightly(region: str) -> None: ...


@app.schedule("@hourly")
async def hourly(ctx: qo.Context) -> None: ...


@router.task(timeout=timedelta(seconds=5), max_concurrent_per_key=1)
async def mail(to: str) -> bool:
    return True


@app.task
async def of_anything(data: Any) -> int:
    return 1


@app.middleware
def around(ctx: qo.Context) -> Generator[None, None, None]:
    yield


@app.middleware
def also_around(ctx: qo.Context) -> Iterator[None]:
    yield


@app.middleware
async def around_async(ctx: qo.Context) -> AsyncGenerator[None, None]:
    yield


app.include([router, "shop.billing", qo])


async def submits() -> None:
    assert_type(await bare.submit(1), qo.JobHandle[str])
    assert_type(await (await bare.submit(number=1)).result(timeout=3), str)
    assert_type(await (await with_context.submit("a", tries=2)).result(), dict[str, int])
    assert_type(await (await plain.submit("a")).result(), float | None)
    assert_type(await plain_with_context.submit("a"), qo.JobHandle[list[int]])
    assert_type(bare.submit_sync(1), qo.sync.JobHandle[str])
    assert_type(bare.submit_sync(1).result(timeout=timedelta(seconds=1)), str)
    assert_type(await bare.submit_many([{"number": 1}, (2,), bare.job(3)]), list[qo.JobHandle[str]])
    assert_type(await nightly.submit("eu"), qo.JobHandle[None])
    await hourly.submit()
    assert_type(await mail.submit("ann"), qo.JobHandle[bool])
    await of_anything.submit({"any": "thing"})
    await of_anything.submit(data=3)


async def options() -> None:
    known = bare.options(
        key="a", delay=1.5, run_at=datetime.now(timezone.utc), limits={"gpu": 2}, on_limit="reject", backoff=2.0
    )
    assert_type(await known.submit(1), qo.JobHandle[str])
    assert_type(await bare.options(on_limit="skip", key=None).submit(1), qo.JobHandle[str] | None)
    assert_type(await bare.options(on_limit="skip").options(cost=2).submit(1), qo.JobHandle[str] | None)
    assert_type(bare.options(on_limit="skip").submit_sync(1), qo.sync.JobHandle[str] | None)
    assert_type(await bare.options(on_limit="skip").submit_many([{}]), list[qo.JobHandle[str] | None])
    shared: qo.SubmitOptions = {"queue": "slow"}
    await bare.options(**shared).submit(1)


async def clients() -> None:
    client = await qo.connect("memory:")
    assert_type(await client.submit("resize", [1], concurrency_group="a", concurrency_limit=5), qo.JobHandle[Any])
    assert_type(await client.submit("resize", on_limit="skip"), qo.JobHandle[Any] | None)
    assert_type(await client.jobs(states=["failed"], limit=10), qo.Page[qo.JobInfo])
    assert_type(await client.concurrency.status("a"), qo.ConcurrencyStatus)
    assert_type(await client.queues(), list[qo.QueueInfo])
    assert_type(await client.cancel_jobs(task="resize"), int)
    assert_type(await client.job("a").progress(), qo.Progress | None)
    assert_type(await client.workflow("w", on_failure="continue").status(), qo.WorkflowInfo)
    assert_type(await client.workflow("w").submit(with_context, "a", tries=2), qo.JobHandle[dict[str, int]])
    assert_type(await app.workflow("w").submit_many([bare.job(1), mail.job("ann")]), list[qo.JobHandle[Any]])
    assert_type(await app.submit_many([bare.job(1), mail.job("ann")]), list[qo.JobHandle[Any]])
    skipping = bare.options(on_limit="skip").job(1)
    assert_type(await app.submit_many([bare.job(1), skipping]), list[qo.JobHandle[Any] | None])
    async with client.slot("deploy", limit=1) as slot:
        assert_type(slot.token, int)
    with client.slot("deploy", limit=1, timeout=3) as slot:
        assert_type(slot.lost, bool)
    manager = qo.ConcurrencyManager(client)
    held = await manager.try_acquire("gpu", 2, uuid.uuid4(), "render-7", lease_duration=30)
    assert_type(held, qo.HeldSlot | None)
    if held is not None:
        assert_type(await manager.extend_lease(held, 30), datetime)
        await manager.release(held)
    assert_type(await manager.cleanup_expired(), int)
    assert_type(qo.sync.ConcurrencyManager(qo.sync.Client("memory:")).get_status("gpu"), qo.ConcurrencyStatus)
    worker = qo.Worker(client, "worker-1", [0, 1], max_concurrent_tasks=3)

    @worker.task("resize", max_concurrent=10)
    async def resize(data: Any, ctx: qo.Context) -> int:
        return ctx.attempt

    assert_type(await resize(1, qo.current()), int)
    await app.run(until_signal=False, queues=["a"], lease=5.0, on_stuck=lambda ctx: ctx.job)
    await worker.run()


def without_asyncio() -> None:
    shop = qo.sync.App("memory:")

    @shop.task(max_concurrent=3)
    async def call(ctx: qo.sync.Context, url: str) -> int:
        return 1

    @shop.schedule("@daily")
    @shop.task
    def report(day: str = "today") -> list[str]:
        return []

    assert_type(call.submit("a"), qo.sync.JobHandle[int])
    assert_type(call.submit("a").result(timeout=1), int)
    assert_type(report.submit(), qo.sync.JobHandle[list[str]])
    assert_type(report.options(on_limit="skip").submit("x"), qo.sync.JobHandle[list[str]] | None)
    with qo.sync.connect("memory:") as client:
        assert_type(client.submit("resize"), qo.sync.JobHandle[Any])
        assert_type(client.concurrency.unset("a"), bool)
        assert_type(client.jobs(key="a"), qo.Page[qo.JobInfo])
        assert_type(client.workflow("w").submit(call, "a"), qo.sync.JobHandle[int])
    shop.run(max_concurrent_tasks=5)


def raised() -> None:
    try:
        raise qo.RetryableError("busy", delay=timedelta(seconds=3))
    except qo.Retry as error:
        assert_type(error.delay, float | None)
    raise qo.Fail
