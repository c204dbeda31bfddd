"""Slots for work that is not a job."""

import asyncio
import uuid

import pytest
import qo
import qo.sync
from conftest import until


def test_a_request_that_is_given_up_leaves_no_slot_taken():
    async def take(client: qo.Client) -> None:
        async with client.slot("deploy", limit=1):
            await asyncio.sleep(60)

    async def main():
        client = qo.Client("memory:")
        for number in range(60):
            asking = asyncio.ensure_future(take(client))
            # At every moment of the request: before it is made, while it is answered, when it is granted.
            for _ in range(number // 3):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])

            async def is_free() -> bool:
                return (await client.concurrency.status("deploy")).active == 0

            await until(is_free, "the slot is free")

    asyncio.run(main())


def test_a_manager_takes_extends_and_gives_back_slots(url):
    async def main():
        async with await qo.connect(url) as queue:
            manager, mine, other = qo.ConcurrencyManager(queue), uuid.uuid4(), uuid.uuid4()
            assert (await manager.get_status("gpu")).active == 0
            slot = await manager.try_acquire("gpu", 1, mine, "render-7", lease_duration=30)
            assert slot is not None
            assert (slot.group, slot.task_id, slot.slot_id) == ("gpu", str(mine), slot.token)
            assert await manager.try_acquire("gpu", 1, other, "render-8") is None
            again = await manager.try_acquire("gpu", 1, mine, "render-7", lease_duration=30)
            assert again is not None
            assert again.token == slot.token, "the same id gets the same slot"
            status = await manager.get_status("gpu")
            assert (status.limit, status.active) == (1, 1)
            assert [(held.worker_id, held.task_id) for held in status.slots] == [("render-7", str(mine))]
            assert await manager.extend_lease(slot, 600) > slot.expires_at
            assert await manager.cleanup_expired() == 0
            await manager.release(slot)
            with pytest.raises(qo.Fenced):
                await manager.release(slot)
            with pytest.raises(qo.Fenced):
                await manager.extend_lease(slot)
            newer = await manager.try_acquire("gpu", 1, other, "render-8")
            assert newer is not None
            assert newer.token > slot.token

    asyncio.run(main())


def test_a_managers_slot_comes_back_when_its_lease_is_over():
    client = qo.sync.Client("memory:")
    manager = qo.sync.ConcurrencyManager(client)
    assert manager.try_acquire("gpu", 1, uuid.uuid4(), "a", lease_duration=1) is not None

    async def is_freed() -> bool:
        return await asyncio.to_thread(manager.cleanup_expired) == 1

    asyncio.run(until(is_freed, "the lease is over"))
    assert manager.get_status("gpu").active == 0


def test_a_manager_names_what_is_wrong():
    manager = qo.sync.ConcurrencyManager(qo.sync.Client("memory:"))
    for mistake, group, limit, task, worker, lease in [
        ("group", "a b", 1, str(uuid.uuid4()), "w", 30),
        ("limit", "gpu", -1, str(uuid.uuid4()), "w", 30),
        ("task_id", "gpu", 1, "seven", "w", 30),
        ("worker_id", "gpu", 1, str(uuid.uuid4()), "", 30),
        ("lease_duration", "gpu", 1, str(uuid.uuid4()), "w", "long"),
    ]:
        with pytest.raises(qo.Invalid, match=rf"^{mistake}: "):
            manager.try_acquire(group, limit, task, worker, lease_duration=lease)
    with pytest.raises(qo.Invalid, match=r"^slot: .*must be what try_acquire returned"):
        manager.release("gpu")
