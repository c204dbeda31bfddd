"""qo without asyncio."""

import asyncio
import inspect
import threading
import uuid
from contextlib import contextmanager

import pytest
import qo
import qo.sync


@contextmanager
def working(app: qo.sync.App):
    thread = threading.Thread(target=app.run, kwargs={"until_signal": False})
    thread.start()
    try:
        yield app
    finally:
        app.shutdown()
        thread.join(30)
        assert not thread.is_alive()


def test_an_app_works_without_asyncio(url):
    app = qo.sync.App(url)

    @app.task(max_concurrent=2)
    async def add(ctx: qo.sync.Context, a: int, b: int = 1) -> int:
        return a + b

    @app.task
    def shout(text: str) -> str:
        if not text:
            raise qo.Fail("nothing to say")
        return text.upper()

    with working(app):
        job = add.submit(1, b=2)
        assert (type(job), job.result(timeout=30)) == (qo.sync.JobHandle, 3)
        assert [one.result(timeout=30) for one in add.submit_many([{"a": 1}, (2,)])] == [2, 3]
        mixed = app.submit_many([add.job(5), shout.job("a")])
        assert [one.result(timeout=30) for one in mixed] == [6, "A"]
        order = app.workflow("order-7")
        assert order.submit(shout, "b").result(timeout=30) == "B"
        assert order.status().steps == 1
        with pytest.raises(qo.JobFailed, match="nothing to say"):
            shout.submit("").result(timeout=30)
        assert [info.state for info in app.client.jobs(states=["failed"])] == ["failed"]


def test_a_full_group_skips_without_asyncio():
    app = qo.sync.App("memory:")

    @app.task("work")
    def work() -> None: ...

    app.client.concurrency.set("work", 1)
    assert work.options(on_limit="skip").submit() is not None
    assert work.options(on_limit="skip").submit() is None
    assert app.client.submit("work", on_limit="skip") is None
    with pytest.raises(qo.LimitReached):
        work.options(on_limit="reject").submit()
    job = work.options(delay=60).submit()
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s"):
        job.result(timeout=0.05)
    app.close()
    with pytest.raises(RuntimeError, match="the app is closed"):
        work.submit()
    with app:
        assert work.submit().info().state == "pending"


def test_tasks_of_an_async_app_are_submitted_without_asyncio():
    app = qo.App("memory:")

    @app.task
    async def work(number: int) -> int:
        return number + 1

    thread = threading.Thread(target=lambda: asyncio.run(app.run()))
    thread.start()
    job = work.submit_sync(1)
    assert (type(job), job.result(timeout=30)) == (qo.sync.JobHandle, 2)
    assert [one.result(timeout=30) for one in work.submit_many_sync([{"number": 1}, (2,)])] == [2, 3]
    assert work.options(on_limit="skip").submit_sync(4).result(timeout=30) == 5
    app.shutdown()
    thread.join(30)


def test_a_router_and_a_schedule_work_without_asyncio():
    tasks = qo.sync.Tasks(queue="mail")

    @tasks.schedule("@daily")
    @tasks.task("send")
    def send(to: str = "all") -> str:
        return to

    app = qo.sync.App("memory:", name="shop")
    app.include([tasks])
    with working(app):
        assert send.submit("ann").result(timeout=30) == "ann"
        assert [schedule.schedule for schedule in app.client.schedules()] == ["send"]


def test_a_worker_of_a_client_works_without_asyncio():
    queue = qo.sync.connect("memory:")
    worker = qo.sync.Worker(queue, "worker-1")
    worker.task("double", max_concurrent=1)(lambda data, ctx: data * 2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert queue.submit("double", 21).result(timeout=30) == 42
    worker.shutdown()
    thread.join(30)


def test_inside_of_an_event_loop_every_call_raises_and_does_nothing():
    app = qo.sync.App("memory:")

    @app.task("work")
    def work() -> None: ...

    client = app.client

    async def main():
        for call in (
            work.submit,
            lambda: work.submit_many([{}]),
            lambda: client.submit("work"),
            client.jobs,
            lambda: client.concurrency.set("work", 1),
            client.job(str(uuid.uuid4())).result,
            lambda: qo.sync.connect("memory:"),
            app.run,
            app.close,
        ):
            with pytest.raises(RuntimeError, match=r"runs an event loop.*await the same call of qo"):
                call()

    asyncio.run(main())
    assert client.jobs() == []


def test_both_fronts_have_the_same_names_and_real_methods():
    for name in ("Client", "JobHandle", "Concurrency", "Workflow", "Task", "SkippingTask"):
        ours, theirs = getattr(qo, name), getattr(qo.sync, name)
        public = {attribute for attribute in dir(ours) if not attribute.startswith("_")}
        missing = public - set(dir(theirs)) - {"sync", "call", "call_sync"}
        assert missing - {"submit_sync", "submit_many_sync"} == set()
        for attribute in public & set(dir(theirs)):
            is_async = inspect.iscoroutinefunction(getattr(ours, attribute))
            assert not inspect.iscoroutinefunction(getattr(theirs, attribute)), attribute
            if is_async:
                assert getattr(ours, attribute).__doc__, attribute
    assert str(inspect.signature(qo.JobHandle.cancel)) == "(self) -> 'JobState'"
    assert qo.JobHandle.cancel.__qualname__ == "JobHandle.cancel"


def test_a_handle_and_a_client_have_a_view_without_asyncio():
    app = qo.App("memory:")

    @app.task("work")
    async def work() -> None: ...

    job = asyncio.run(work.submit())
    assert (job.sync, job.sync.info().state) == (job, "pending")
    assert [info.id for info in app.client.sync.jobs()] == [job.id]
