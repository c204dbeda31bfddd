"""Slots for work that is not a job."""

import asyncio

import qo
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
