"""An app: its tasks, its jobs, its worker."""

import asyncio
import dataclasses
import enum
import re
import threading
import time
import uuid
from datetime import datetime, timedelta, timezone

import pytest
import qo
from conftest import running, until


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    at: datetime
    size: Size
    lines: list[int]


def test_a_job_runs_and_its_result_comes_back(url):
    app = qo.App(url, name="shop")

    @app.task(max_concurrent=10)
    async def call_api(ctx: qo.Context, address: str, tries: int = 1) -> dict[str, object]:
        assert qo.current() is ctx
        return {"address": address, "tries": tries, "attempt": ctx.attempt}

    async def main():
        async with running(app):
            job = await call_api.options(key="customer-7").submit("https://example.org", tries=2)
            return await job.result(timeout=30)

    assert asyncio.run(main()) == {"address": "https://example.org", "tries": 2, "attempt": 1}


def test_a_def_runs_in_a_thread_beside_others(url):
    app = qo.App(url)
    both = threading.Barrier(2, timeout=20)

    @app.task
    def meet(number: int) -> str:
        both.wait()
        return f"{number} in {threading.current_thread().name}"

    async def main():
        async with running(app):
            jobs = [await meet.submit(1), await meet.submit(2)]
            return [await job.result(timeout=30) for job in jobs]

    assert all("qo-handler" in result for result in asyncio.run(main()))


def test_a_limit_holds_and_is_reached(url):
    app = qo.App(url)
    now, most = 0, 0

    @app.task(max_concurrent=3)
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1

    async def main():
        handles = await work.submit_many([{}] * 30)
        async with running(app):
            for handle in handles:
                await handle.result(timeout=60)

    asyncio.run(main())
    assert most == 3


def test_values_come_back_as_their_annotations_say():
    app = qo.App("memory:")

    @app.task
    async def later(order: Order, by: timedelta, sizes: dict[str, Size | None]) -> Order:
        assert sizes == {"a": Size.LARGE, "b": None}
        return dataclasses.replace(order, at=order.at + by)

    order = Order(uuid.uuid4(), datetime(2026, 11, 18, tzinfo=timezone.utc), Size.SMALL, [1, 2])

    async def main():
        async with running(app):
            job = await later.submit(order, by=timedelta(hours=2), sizes={"a": Size.LARGE, "b": None})
            return await job.result(timeout=30)

    assert asyncio.run(main()) == dataclasses.replace(order, at=order.at + timedelta(hours=2))


def test_what_a_handler_raises_decides_what_comes_next():
    app = qo.App("memory:")
    seen: list[str] = []

    @app.task(max_attempts=2, backoff=qo.Backoff(base=0.01), fail_on=(KeyError,))
    async def act(how: str) -> int:
        seen.append(how)
        if how == "fail":
            raise qo.Fail("no")
        if how == "key":
            raise KeyError("gone")
        if how == "exit":
            raise SystemExit(3)
        if how == "snooze" and seen.count(how) < 3:
            raise qo.Snooze(0.01)
        if how == "retry" and seen.count(how) < 2:
            raise qo.RetryableError("again", delay=timedelta(milliseconds=10))
        if how == "always":
            raise ValueError("always wrong")
        return seen.count(how)

    async def main():
        async with running(app, poll_interval=0.05):
            ended = {}
            for how in ("fail", "key", "exit", "snooze", "retry", "always"):
                job = await act.submit(how)
                try:
                    ended[how] = await job.result(timeout=30)
                except qo.JobFailed as failed:
                    ended[how] = failed.error
            return ended

    ended = asyncio.run(main())
    assert (ended["snooze"], ended["retry"]) == (3, 2)
    assert [seen.count(how) for how in ("fail", "key", "exit", "always")] == [1, 1, 2, 2]
    assert "qo._errors.Fail: no" in ended["fail"]
    assert "ValueError: always wrong" in ended["always"]
    assert "in act" in ended["always"], "the traceback is kept"
    assert "SystemExit: 3" in ended["exit"]


def test_a_running_job_is_cancelled():
    app = qo.App("memory:")
    started = asyncio.Event()

    @app.task
    async def forever() -> None:
        started.set()
        await asyncio.sleep(600)

    async def main():
        async with running(app):
            job = await forever.submit()
            await started.wait()
            assert await job.cancel() == "running"
            with pytest.raises(qo.JobCancelled):
                await job.result(timeout=30)

    asyncio.run(main())


def test_a_job_that_waits_says_why(url):
    app = qo.App(url)

    @app.task
    async def work() -> None:
        pass

    async def main():
        await app.client.concurrency.set(work.name, 0)
        job = await work.options(delay=0.0, priority=5).submit()
        explained = await job.explain()
        assert explained.reasons[0]["reason"] == "held_by_limit_zero", explained
        status = await app.client.concurrency.status(work.name)
        assert (status.limit, status.active, status.slots) == (0, 0, [])
        with pytest.raises(TimeoutError):
            await job.result(timeout=0.2)
        assert [info.id for info in await app.client.jobs(states=["pending"])] == [job.id]

    asyncio.run(main())


def test_what_is_refused_is_refused_by_name():
    app = qo.App("memory:")

    @app.task("work", max_concurrent=1)
    async def work(number: int) -> None:
        pass

    async def main():
        with pytest.raises(TypeError, match="number"):
            await work.submit()  # type: ignore[call-arg]
        with pytest.raises(qo.Invalid, match="no JSON") as caught:
            await work.submit(object())  # type: ignore[arg-type]
        assert caught.value.path == "work(number)"
        with pytest.raises(qo.Invalid, match="no such option"):
            await work.options(prio=3).submit(1)  # type: ignore[call-arg]
        with pytest.raises(qo.Invalid, match="cost") as caught:
            await work.options(cost=0).submit(1)
        assert caught.value.path == "jobs[0].cost"
        with pytest.raises(qo.Invalid, match="time zone"):
            await work.options(run_at=datetime(2026, 1, 1)).submit(1)  # noqa: DTZ001
        with pytest.raises(qo.NotFound):
            await app.client.job(str(uuid.uuid4())).info()
        with pytest.raises(qo.Invalid, match="twice"):
            app.task("work")(work.__wrapped__)
        with pytest.raises(qo.Invalid, match="no such option of a worker"):
            await app.run(processes_=3)
        await app.close()
        with pytest.raises(RuntimeError, match="closed"):
            await work.submit(1)

    asyncio.run(main())


def test_a_payload_that_does_not_fit_fails_the_job_and_says_why():
    app = qo.App("memory:")

    @app.task("work")
    async def work(number: int, text: str = "") -> None:
        pass

    async def main():
        async with running(app):
            for payload, why in [
                ({"number": "one"}, "number: must be int"),
                ({"text": "a"}, "number is missing"),
                ({"number": 1, "colour": 2}, "there is no colour"),
                ([1], "must be an object"),
            ]:
                job = await app.client.submit("work", payload)
                with pytest.raises(qo.JobFailed, match=why):
                    await job.result(timeout=30)

    asyncio.run(main())


def test_a_group_that_is_full_refuses_or_skips():
    app = qo.App("memory:")

    @app.task("work")
    async def work() -> None:
        pass

    async def main():
        await app.client.concurrency.set("work", 1)
        await work.submit()
        with pytest.raises(qo.LimitReached):
            await work.options(on_limit="reject").submit()
        assert await work.options(on_limit="skip").submit_many([{}]) == [None]

    asyncio.run(main())


def test_names_of_the_first_document_work():
    async def main():
        queue = await qo.connect("memory:")
        worker = qo.Worker(queue, "worker-1", [0, 1])
        ends = []

        @worker.task("call_external_api", max_concurrent=10)
        async def call(data, ctx):
            ends.append(await ctx.extend_lease(60))
            return {"got": data}

        worker.task("process_heavy", max_concurrent=2)(lambda data, ctx: data * 2)
        working = asyncio.ensure_future(worker.run(until_signal=False))
        job = await queue.submit("call_external_api", [1, 2], concurrency_group="api", concurrency_limit=5)
        heavy = await queue.submit("process_heavy", 21)
        assert await job.result(timeout=30) == {"got": [1, 2]}
        assert await heavy.result(timeout=30) == 42
        status = await queue.concurrency.status("call_external_api")
        assert isinstance(status, qo.ConcurrencyStatus)
        worker.shutdown()
        await asyncio.wait_for(working, 30)
        return ends[0]

    assert asyncio.run(main()) > datetime.now(timezone.utc)


def test_progress_is_shown():
    app = qo.App("memory:")
    go = asyncio.Event()

    @app.task
    async def work(ctx: qo.Context) -> None:
        ctx.progress(0.5, "half")
        await go.wait()

    async def main():
        async with running(app):
            job = await work.submit()

            async def is_half() -> bool:
                run = (await job.info()).raw["running"]
                return bool(run and run["progress"] and run["progress"]["percent"] == 50)

            await until(is_half, "progress")
            go.set()
            await job.result(timeout=30)

    asyncio.run(main())


def test_a_handler_that_holds_the_interpreter_keeps_its_lease(here):
    app = qo.App(here)
    attempts = []

    @app.task
    async def greedy(ctx: qo.Context, seconds: float) -> int:
        attempts.append(ctx.attempt)
        # It gives the interpreter to no other thread, as a long call into C does.
        end = time.monotonic() + seconds
        pattern = "a" * 24
        while time.monotonic() < end:
            re.match(r"(a+)+b", pattern)
        return ctx.attempt

    async def main():
        async with running(app, lease=5.0):
            job = await greedy.submit(9.0)
            return await job.result(timeout=60)

    assert asyncio.run(main()) == 1
    assert attempts == [1]


def test_an_app_works_from_several_event_loops():
    app = qo.App("memory:")

    @app.task
    async def work(number: int) -> int:
        return number + 1

    async def one(number: int) -> int:
        async with running(app):
            job = await work.submit(number)
            return await job.result(timeout=30)

    assert [asyncio.run(one(number)) for number in range(3)] == [1, 2, 3]


def test_without_asyncio():
    app = qo.App("memory:")

    @app.task
    async def work(number: int) -> int:
        return number + 1

    ready, loop = threading.Event(), asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        ready.set()
        loop.run_until_complete(app.run(until_signal=False))

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    job = work.submit_sync(1)
    assert job.result_sync(timeout=30) == 2
    app.shutdown()
    thread.join(30)

    async def inside() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            work.submit_sync(1)

    asyncio.run(inside())
