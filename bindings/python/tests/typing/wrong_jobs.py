"""Classes of jobs that are used wrongly. Each line with `wrong` is one that both type checkers must report."""

from __future__ import annotations

import dataclasses

import qo


class Import(qo.Job):
    def __init__(self, shop: str) -> None:
        self.shop = shop

    def run(self) -> int:
        return 1


class Bare(qo.Job):
    async def run(self) -> str:
        return "done"


@dataclasses.dataclass
class Resize(qo.Job):
    width: int

    def run(self) -> None:
        pass


class Wrong(qo.Job):
    priority = "high"  # wrong
    unique = 3  # wrong

    def get_concurrency_key(self) -> int:  # wrong
        return 1

    def get_concurrency_limit(self) -> str:  # wrong
        return "1"


def constructors() -> None:
    Import(1)  # wrong
    Import()  # wrong
    Bare(1)  # wrong
    Resize("3")  # wrong


def submits() -> None:
    Import("north").run_in_worker(colour="red")  # wrong
    Import("north").run_in_worker(priority="high")  # wrong
    Import("north").run_in_worker(on_limit="drop")  # wrong
    Import("north").run_in_worker().result()  # wrong


async def results() -> None:
    handle = await Bare().arun_in_worker()
    if handle is not None:
        number: int = await handle.result()  # wrong
        assert number


def configurations() -> None:
    qo.AppConfig(cluster_wide_cap="20")  # wrong
    qo.AppConfig(custom_queues=["stripe"])  # wrong
    qo.AppConfig(prefetch=4)  # wrong
    qo.CustomQueueConfig(priority=1)  # wrong
