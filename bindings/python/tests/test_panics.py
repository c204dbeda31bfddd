"""A panic in Rust: an exception for a caller, another attempt for a job."""

import asyncio

import pytest
import qo
from conftest import running, url_of
from fleet import Fleet
from qo import _qo


def test_a_panic_in_a_call_is_an_internal_error():
    async def main():
        client = qo.Client("memory:")
        _qo._panic_at("call")
        with pytest.raises(qo.Internal, match="the call panicked: a test asked for a panic"):
            await client.queues()
        assert await client.queues() == []

    asyncio.run(main())


def test_a_panic_before_a_call_is_no_exception_that_code_swallows():
    client = qo.sync.Client("memory:")
    _qo._panic_at("argument")
    with pytest.raises(BaseException, match="a test asked for a panic") as caught:
        client.queues()
    assert type(caught.value).__name__ == "PanicException"
    assert not isinstance(caught.value, Exception)
    assert client.queues() == []


@pytest.fixture(autouse=True)
def asked_for_no_more():
    """A panic that no test came to is not left for the next one."""
    yield
    _qo._panic_at("none")


@pytest.mark.parametrize("place", ["handler", "take", "next", "done"])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_panic_under_a_worker_loses_no_job(place, is_async):
    app = qo.App("memory:")

    def attempt() -> int:
        return qo.current().attempt

    async def attempt_on_the_loop() -> int:
        return attempt()

    work = app.task("work", backoff=0.001)(attempt_on_the_loop if is_async else attempt)

    async def main():
        async with running(app):
            first = await work.submit()
            assert await first.result(timeout=30) == 1
            _qo._panic_at(place)
            jobs = await work.submit_many([{}] * 20)
            return [await job.result(timeout=30) for job in jobs]

    attempts = asyncio.run(main())
    # Outcomes that cannot be handed back together are handed back one by one.
    expected = {"handler": [2], "take": [1 + is_async], "next": [2 - is_async], "done": [1, 2]}
    assert max(attempts) in expected[place]


def test_a_panic_beside_a_child_process_loses_no_job(tmp_path):
    fleet = Fleet(tmp_path, url_of("file", tmp_path))
    source = tmp_path / "shop.py"
    source.write_text(source.read_text() + "\nqo._qo._panic_at('child')\n")
    try:
        worker = fleet.start("--processes=1")
        told = fleet.run("import shop; print(shop.whoami.submit_sync().result(timeout=60)['attempt'])")
        assert told == "2\n", fleet.log(worker)
        fleet.end()
    finally:
        fleet.kill()
