"""Classes of jobs and configurations that are right, and the types that type checkers infer."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING

import qo
import qo.sync
from typing_extensions import assert_type

if TYPE_CHECKING:
    import psycopg

config = qo.AppConfig(
    queue_mode=qo.QueueMode.CUSTOM,
    custom_queues=[qo.CustomQueueConfig(name="stripe", priority=1, max_concurrency=3), qo.CustomQueueConfig("mail")],
    cluster_wide_cap=15,
    broker=qo.PostgresConfig(database_url="postgres://db/shop"),
)
app = qo.App(config, name="shop")
tasks = qo.Tasks()


class Import(qo.Job, app=app):
    queue = "imports"
    priority = 5
    retries = 4
    timeout = timedelta(minutes=5)

    def __init__(self, shop: str, *, day: int = 1) -> None:
        self.shop = shop
        self.day = day

    def run(self) -> int:
        return self.day

    def get_concurrency_key(self) -> str:
        return f"shop-{self.shop}"

    def get_concurrency_limit(self) -> int:
        return 1


class Sync(qo.Job, app=tasks, name="sync"):
    unique = True
    schedule = "0 3 * * *"
    timezone = "Europe/Berlin"

    async def run(self, ctx: qo.Context) -> str:
        return ctx.job


@dataclasses.dataclass
class Resize(qo.Job):
    width: int

    async def run(self) -> list[int]:
        return [self.width]


def without_asyncio(connection: psycopg.Connection) -> None:
    assert_type(Import("north").run_in_worker(), qo.sync.JobHandle[int] | None)
    assert_type(Sync().run_in_worker(concurrency_key="a", on_limit="reject"), qo.sync.JobHandle[str] | None)
    assert_type(Resize(3).run_in_worker(delay=5, retries=0, limit=None), qo.sync.JobHandle[list[int]] | None)
    assert_type(Import("north", day=2).new_job(priority=1), qo.NewJob[int])
    assert_type(Resize(3).submit_in(connection), qo.sync.JobHandle[list[int]] | None)


async def with_asyncio(connection: psycopg.AsyncConnection) -> None:
    handle = await Sync().arun_in_worker(delay=timedelta(hours=1))
    assert_type(handle, qo.JobHandle[str] | None)
    if handle is not None:
        assert_type(await handle.result(), str)
    assert_type(await Resize(3).arun_in_worker(), qo.JobHandle[list[int]] | None)
    assert_type(await Import("north").submit_in(connection), qo.JobHandle[int] | None)
    await app.submit_many([Import("north").new_job(), Resize(3).new_job()])
