"""A client: submitting by name, looking, what operators do, and slots."""

import asyncio
import gc
import pickle
import subprocess
import sys
import threading
import uuid
from datetime import datetime, timedelta, timezone

import pytest
import qo
from conftest import running, until


def test_jobs_are_submitted_by_name_with_any_payload(url):
    async def main():
        async with await qo.connect(url) as queue:
            job = await queue.submit("resize", {"file": "cat.png"}, key="a", priority=-3, queue="slow")
            info = await job.info()
            assert (info.id, info.task, info.state, info.key) == (job.id, "resize", "pending", "a")
            assert (info.priority, info.queue, info.payload, info.attempts) == (-3, "slow", {"file": "cat.png"}, [])
            assert info.submitted_at.tzinfo is timezone.utc
            assert queue.job(job.id) == job
            assert len({job, queue.job(job.id)}) == 1
            with pytest.raises(qo.Invalid, match=r"data: .*must be JSON"):
                await queue.submit("resize", object())
            with pytest.raises(qo.Invalid, match=r"concurrency_group: .*is another name of group"):
                await queue.submit("resize", group="a", concurrency_group="b")
            assert [told.id for told in await queue.submit_many([])] == []
        with pytest.raises(RuntimeError, match="the client is closed"):
            await job.info()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await queue.submit("resize")

    asyncio.run(main())


def test_a_job_that_waits_says_why(url):
    app = qo.App(url)

    @app.task("work")
    async def work() -> None:
        pass

    async def main():
        client = app.client
        assert await client.concurrency.status("work") == qo.ConcurrencyStatus("work", None, 0, 0, None)
        await client.concurrency.set("work", 0)
        job = await work.options(priority=5).submit()
        explained = await job.explain()
        assert [reason.kind for reason in explained.reasons] == ["held_by_limit_zero", "no_live_worker"]
        assert str(explained) == (
            f"job {job.id} is pending.\n"
            "- The limit of work is 0, which holds everything.\n"
            "  → qo concurrency set work --limit N, or take an operator's 0 back: qo concurrency unset work\n"
            "- No live worker has task work and serves queue default.\n"
            "  → start one: qo worker MODULE:OBJECT; see the live workers: qo workers"
        )
        status = await client.concurrency.status("work")
        assert (status.limit, status.active, status.live, status.source, status.slots) == (0, 0, 1, "operator", [])
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.1 s"):
            await job.result(timeout=timedelta(milliseconds=100))
        assert [info.id for info in await client.jobs(states=["pending"])] == [job.id]
        assert await client.concurrency.unset("work") is True
        assert await client.concurrency.unset("work") is False

    asyncio.run(main())


def test_jobs_are_listed_in_pages_cancelled_and_opened_again():
    async def main():
        client = await qo.connect("memory:")
        for number in range(5):
            await client.submit("work", number, key="even" if number % 2 == 0 else "odd")
        first = await client.jobs(limit=3)
        rest = await client.jobs(limit=3, after=first.next)
        assert [len(first), len(rest), rest.next] == [3, 2, None]
        assert len(await client.jobs(key="odd", task="work", states="pending")) == 2  # type: ignore[arg-type]
        assert await client.cancel_jobs(key="odd") == 2
        job = (await client.jobs(states=["cancelled"]))[0]
        with pytest.raises(qo.JobCancelled) as caught:
            await client.job(job.id).result(timeout=5)
        assert caught.value.job == job.id
        assert await client.retry_jobs(states=["cancelled"]) == 2
        assert await client.job(job.id).cancel() == "cancelled"
        assert await client.job(job.id).retry() == "pending"
        with pytest.raises(qo.Invalid, match="must say which jobs"):
            await client.cancel_jobs()
        with pytest.raises(qo.UnknownOption, match="did you mean states"):
            await client.cancel_jobs(state=["failed"])  # type: ignore[call-arg]
        with pytest.raises(qo.Invalid, match="states: 'broken': must be one of 'pending'"):
            await client.jobs(states=["broken"])  # type: ignore[list-item]

    asyncio.run(main())


def test_a_job_that_expires_has_no_result():
    app = qo.App("memory:")
    app.task("other")(lambda: None)

    async def main():
        soon = datetime.now(timezone.utc) + timedelta(milliseconds=50)
        job = await app.client.submit("work", good_until=soon)
        async with running(app, poll_interval=0.05):
            with pytest.raises(qo.JobExpired):
                await job.result(timeout=30)

    asyncio.run(main())


def test_queues_groups_and_workers_are_shown():
    app = qo.App("memory:")
    go = asyncio.Event()

    @app.task("work", max_concurrent=1)
    async def work() -> None:
        await go.wait()

    async def main():
        client = app.client
        await client.pause("slow")
        await work.options(queue="slow").submit()
        async with running(app, name="worker-1", queues=["default", "slow"], max_concurrent_tasks=7):
            jobs = await work.submit_many([{}, {}])
            await until(lambda: is_running(jobs[0]), "running")
            status = await client.concurrency.status("work")
            assert (status.limit, status.active, status.live, status.source) == (1, 1, 3, "code")
            [slot] = status.slots
            assert (slot.worker_id, slot.task_id, slot.slots) == ("worker-1", jobs[0].id, 1)
            assert slot.acquired_at < slot.expires_at
            queues = {queue.queue: queue for queue in await client.queues()}
            assert (queues["slow"].paused, queues["slow"].due, queues["default"].running) == (True, 1, 1)
            groups = {group.group: group for group in await client.groups()}
            assert groups["work"] == qo.GroupInfo("work", 1, 1, 3, "code")
            [worker] = await client.workers()
            assert (worker.worker, worker.tasks, worker.permits, worker.running) == ("worker-1", ["work"], 7, 1)
            info = await jobs[0].info()
            assert (info.running.worker, info.running.fence_token) == ("worker-1", slot.slot_id)
            explained = await jobs[1].explain()
            assert "Group work is full: its slot is taken. It is number 2 in line." in str(explained)
            await client.concurrency.release("work", slot.slot_id)
            with pytest.raises(qo.NotFound):
                await client.concurrency.release("work", slot.slot_id)
            go.set()
            await client.resume("slow")
            for job in jobs:
                await job.result(timeout=30)

    async def is_running(job):
        return (await job.info()).state == "running"

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
        worker.task("only_data")(lambda data: data + 1)
        working = asyncio.ensure_future(worker.run(until_signal=False))
        job = await queue.submit("call_external_api", [1, 2], concurrency_group="api", concurrency_limit=5)
        heavy = await queue.submit("process_heavy", 21)
        assert await job.result(timeout=30) == {"got": [1, 2]}
        assert await heavy.result(timeout=30) == 42
        assert await (await queue.submit("only_data", 1)).result(timeout=30) == 2
        status = await queue.concurrency.status("call_external_api")
        assert isinstance(status, qo.ConcurrencyStatus)
        assert status.limit == 10
        with pytest.raises(qo.Invalid, match="declared twice"):
            worker.task("only_data")(lambda data: data)
        worker.shutdown()
        await asyncio.wait_for(working, 30)
        return ends[0]

    assert asyncio.run(main()) > datetime.now(timezone.utc)


def test_a_slot_is_held_by_a_block(url):
    async def main():
        async with await qo.connect(url) as client:
            async with client.slot("deploy", limit=1, holder="ci") as slot:
                assert (slot.lost, slot.group) == (False, "deploy")
                status = await client.concurrency.status("deploy")
                assert [(held.slot_id, held.worker_id) for held in status.slots] == [(slot.token, "ci")]
                with pytest.raises(qo.LimitReached, match="deploy: no slot is free now"):
                    async with client.slot("deploy", wait=False):
                        pass
                with pytest.raises(TimeoutError, match=r"deploy: no slot was free within 0\.1 s"):
                    async with client.slot("deploy", timeout=0.1):
                        pass
                with pytest.raises(RuntimeError, match="are held already"):
                    async with slot:
                        pass
                first = slot.token
            with pytest.raises(RuntimeError, match="inside the block"):
                _ = slot.token
            async with slot:
                assert slot.token > first
            assert (await client.concurrency.status("deploy")).active == 0
            order = []

            async def take(number):
                async with client.slot("deploy"):
                    order.append(number)
                    await asyncio.sleep(0.01)
                    order.append(number)

            await client.concurrency.set("deploy", 1)
            await asyncio.gather(*map(take, range(3)))
            assert [order[place] for place in (0, 2, 4)] == [order[place] for place in (1, 3, 5)]

    asyncio.run(main())


def test_a_slot_that_is_lost_stops_its_block():
    async def main():
        client = await qo.connect("memory:")

        async def is_stopped() -> None:
            async with client.slot("deploy", limit=1, lease=3) as slot:
                await client.concurrency.release("deploy", slot.token)
                await asyncio.sleep(30)

        async def goes_on() -> None:
            async with client.slot("deploy", lease=3) as slot:
                await client.concurrency.release("deploy", slot.token)
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(30)
                assert slot.lost

        for block in (is_stopped, goes_on):
            with pytest.raises(qo.Fenced):
                await block()
            # The task itself was not cancelled.
            await asyncio.sleep(0)
        # The block's own error comes first.
        with pytest.raises(KeyError):
            async with client.slot("deploy", lease=3):
                raise KeyError("own")
        assert (await client.concurrency.status("deploy")).active == 0

    asyncio.run(main())


def test_a_slot_is_held_by_a_block_without_asyncio():
    client = qo.Client("memory:")
    with client.slot("deploy", limit=1) as slot:
        assert client.sync.concurrency.status("deploy").active == 1
        with pytest.raises(qo.LimitReached), client.slot("deploy", wait=False):
            pass
        slot.raise_if_lost()
    lost = threading.Event()

    def hold() -> None:
        with client.slot("deploy", lease=3) as held:
            client.sync.concurrency.release("deploy", held.token)
            while not held.lost:
                pass
            lost.set()

    with pytest.raises(qo.Fenced):
        hold()
    assert lost.is_set()
    assert client.sync.concurrency.status("deploy").active == 0

    async def inside() -> None:
        with pytest.raises(RuntimeError, match="event loop"), client.slot("deploy"):
            pass

    asyncio.run(inside())


def test_a_wait_that_is_given_up_leaves_no_task_behind():
    async def main():
        client = await qo.connect("memory:")
        job = await client.submit("work")
        waiting = asyncio.ensure_future(job.result())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(job.result(), 0.01)
        gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_loop_that_is_closed_before_the_answer_disturbs_no_other():
    app = qo.App("memory:")

    @app.task("work")
    async def work() -> int:
        return 1

    async def wait(handle: qo.JobHandle[int]) -> int:
        async with running(app):
            return await handle.result(timeout=30)

    loop = asyncio.new_event_loop()
    job = loop.run_until_complete(work.submit())
    waiting = loop.create_task(job.result())
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert asyncio.run(wait(job)) == 1
    # It stays without its answer; nothing waits for it any more.
    assert not waiting.done()
    waiting._log_destroy_pending = False


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("", qo.Invalid),
        ("ftp://example.org", qo.Invalid),
        ("file:", qo.Invalid),
        ("file:/proc/no/such/place", qo.Unavailable),
        ("postgres://127.0.0.1:1/none?schema=qo", qo.Unavailable),
        (3, qo.Invalid),
    ],
)
def test_a_url_that_cannot_be_is_refused(url, error):
    with pytest.raises(error) as caught:
        qo.sync.connect(url)
    assert str(caught.value)


def test_without_a_url_the_file_names_the_store(tmp_path, monkeypatch):
    (tmp_path / ".qo.toml").write_text('store = "file:jobs"')
    monkeypatch.chdir(tmp_path)
    with qo.sync.connect() as client:
        client.submit("work")
    assert (client.url, (tmp_path / "jobs").is_dir()) == (f"file:{tmp_path / 'jobs'}", True)

    async def main():
        async with await qo.connect() as queue:
            return len(await queue.jobs())

    assert asyncio.run(main()) == 1


def test_errors_are_of_the_classes_that_python_has_for_them():
    assert issubclass(qo.Invalid, ValueError)
    assert issubclass(qo.NotFound, LookupError)
    assert issubclass(qo.Unavailable, ConnectionError)
    assert issubclass(qo.UnknownOutcome, ConnectionError)
    assert (qo.RetryableError, qo.PermanentError, qo.RescheduleError) == (qo.Retry, qo.Fail, qo.Snooze)
    assert repr(qo.Fail("no")) == "Fail('no')"
    assert qo.Invalid.__module__ == "qo"
    failed = qo.JobFailed("it failed", job="7", error="no", traceback="…")
    for error in (failed, qo.Invalid.of("a", 1, "must be 2"), qo.Retry("again", delay=3), qo.Snooze(5)):
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    for wrong in (-1, float("nan"), "soon", None):
        with pytest.raises(qo.Invalid, match=r"delay: .*must be seconds"):
            qo.Snooze(wrong)

    async def main():
        client = await qo.connect("memory:")
        with pytest.raises(qo.NotFound) as caught:
            await client.job(str(uuid.UUID(int=1))).result()
        assert caught.value.kind == "not_found"
        with pytest.raises(qo.Invalid, match="job: 'no id': must be a UUID"):
            client.job("no id")
        with pytest.raises(qo.Invalid, match="group"):
            await client.concurrency.set("a b", 1)
        with pytest.raises(qo.Invalid, match="limit"):
            await client.concurrency.set("a", -1)

    asyncio.run(main())


def test_an_explanation_has_the_words_of_the_command_line(here):
    app = qo.sync.App(here)

    @app.task("work", max_concurrent=1)
    def work() -> None: ...

    app.client.concurrency.set("work", 0)
    job = work.options(delay=3600.0).submit()
    command = [sys.executable, "-m", "qo", "explain", job.id, "--store", here]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()[1:]
    # How a worker is started and how far a date is away differ.
    words = [line.partition(" (in ")[0] for line in told if "start one" not in line]
    explained = str(job.explain()).splitlines()[1:]
    assert words == [line.partition(" (in ")[0] for line in explained if "start one" not in line]
    assert len(words) >= 3
