"""A worker: how it runs handlers, stops them, and stops itself."""

import asyncio
import contextvars
import logging
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import asynccontextmanager, suppress

import pytest
import qo
import uvloop
from conftest import running, until


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-c", textwrap.dedent(script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def is_there(values: list, count: int = 1) -> bool:
    return len(values) >= count


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
    assert [thread for thread in threading.enumerate() if "qo-handler" in thread.name] == []


def test_each_attempt_has_variables_of_its_own():
    app = qo.App("memory:")
    variable = contextvars.ContextVar("variable", default="unset")
    seen = []

    @app.task
    async def on_the_loop() -> None:
        seen.append(variable.get())
        variable.set("set")

    @app.task
    def in_a_thread() -> None:
        seen.append(variable.get())
        variable.set("set")
        assert qo.current().task == in_a_thread.name

    async def main():
        async with running(app, max_concurrent_tasks=1):
            for task in (on_the_loop, on_the_loop, in_a_thread, in_a_thread):
                await (await task.submit()).result(timeout=30)

    asyncio.run(main())
    assert seen == ["unset"] * 4
    with pytest.raises(LookupError, match="no job runs here"):
        qo.current()


def test_a_running_job_is_cancelled():
    app = qo.App("memory:")
    started: list[str] = []
    stopped: list[str] = []

    @app.task
    async def on_the_loop(ctx: qo.Context) -> None:
        started.append("loop")
        try:
            await asyncio.sleep(600)
        finally:
            stopped.append(ctx.cancel_reason)

    @app.task
    def in_a_thread(ctx: qo.Context) -> None:
        started.append("thread")
        while True:
            ctx.raise_if_cancelled()
            threading.Event().wait(0.01)

    async def main():
        async with running(app):
            for count, task in enumerate((on_the_loop, in_a_thread), 1):
                job = await task.submit()
                await until(lambda count=count: is_there(started, count), "started")
                assert await job.cancel() == "running"
                with pytest.raises(qo.JobCancelled):
                    await job.result(timeout=30)

    asyncio.run(main())
    assert stopped == ["the job was cancelled"]


def test_a_job_that_is_cancelled_with_others_at_its_start_is_settled():
    app = qo.App("memory:")

    @app.task
    async def work() -> None:
        await asyncio.sleep(600)

    async def main():
        handles = await work.submit_many([{}] * 50)
        async with running(app):
            assert await app.client.cancel_jobs(task=work.name) == 50
            for handle in handles:
                with pytest.raises(qo.JobCancelled):
                    await handle.result(timeout=30)

    asyncio.run(main())


def test_a_cancel_that_a_handler_makes_itself_is_a_failed_attempt():
    app = qo.App("memory:")

    @app.task(max_attempts=1)
    async def work() -> None:
        raise asyncio.CancelledError("by itself")

    async def main():
        async with running(app):
            with pytest.raises(qo.JobFailed, match="CancelledError: by itself"):
                await (await work.submit()).result(timeout=30)

    asyncio.run(main())


def test_a_timeout_stops_the_attempt_and_counts():
    app = qo.App("memory:")

    @app.task(timeout=0.05, max_attempts=1)
    async def work() -> None:
        await asyncio.sleep(600)

    async def main():
        async with running(app):
            with pytest.raises(qo.JobFailed, match="timed out after 50ms"):
                await (await work.submit()).result(timeout=30)

    asyncio.run(main())


def test_a_worker_that_is_cancelled_gives_its_jobs_back():
    app = qo.App("memory:")
    started = []

    @app.task
    async def work() -> int:
        started.append(1)
        await asyncio.sleep(0 if len(started) > 1 else 600)
        return len(started)

    async def main():
        worker = asyncio.ensure_future(app.run(until_signal=False))
        job = await work.submit()
        await until(lambda: is_there(started), "started")
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        info = await job.info()
        assert (info.state, info.attempts_used, info.attempts[0].outcome) == ("pending", 0, "released")
        async with running(app):
            return await job.result(timeout=30)

    assert asyncio.run(main()) == 2


def test_a_loop_that_ends_under_a_worker_gives_its_jobs_back(here):
    ran = run(
        """
        import asyncio, sys, qo
        app = qo.App(sys.argv[1])
        @app.task("work")
        async def work(): await asyncio.sleep(600)
        @app.task("held")
        def held(): qo.current().raise_if_cancelled()
        async def main():
            forgotten = asyncio.ensure_future(app.run(until_signal=False))
            jobs = await work.submit_many([{}] * 5)
            while (await jobs[4].info()).state != "running":
                await asyncio.sleep(0.01)
            return jobs
        jobs = asyncio.run(main())
        async def look():
            print([(info.state, info.attempts_used) for info in [await job.info() for job in jobs]])
        asyncio.run(look())
        """,
        here,
    )
    assert (ran.stdout, ran.stderr) == (f"{[('pending', 0)] * 5}\n", ""), ran


def test_workers_run_on_one_loop_after_another_and_on_uvloop():
    app = qo.App("memory:")

    @app.task
    async def work(number: int) -> int:
        await asyncio.sleep(0.001)
        return number + 1

    @app.task
    def threaded(number: int) -> int:
        return number + 10

    async def one(number: int) -> tuple[int, int]:
        async with running(app):
            jobs = await work.submit(number), await threaded.submit(number)
            return await jobs[0].result(timeout=30), await jobs[1].result(timeout=30)

    assert [asyncio.run(one(number)) for number in range(3)] == [(1, 10), (2, 11), (3, 12)]
    loop = uvloop.new_event_loop()
    assert loop.run_until_complete(one(3)) == (4, 13)
    loop.close()


def test_two_workers_of_one_app_share_a_loop():
    app = qo.App("memory:")

    @app.task
    async def work() -> str:
        return qo.current().job

    async def main():
        async with running(app, name="one"):
            second = asyncio.ensure_future(app.run(until_signal=False, name="two"))
            await until(lambda: both(app), "both are there")
            jobs = await work.submit_many([{}] * 20)
            assert [await job.result(timeout=30) for job in jobs] == [job.id for job in jobs]
        await second

    async def both(app):
        return {worker.worker for worker in await app.client.workers()} == {"one", "two"}

    asyncio.run(main())


def test_a_worker_runs_outside_of_the_main_thread():
    app = qo.sync.App("memory:")

    @app.task
    async def work(number: int) -> int:
        return number + 1

    thread = threading.Thread(target=app.run)
    thread.start()
    assert work.submit(1).result(timeout=30) == 2
    app.shutdown()
    thread.join(30)
    assert not thread.is_alive()


def test_a_shutdown_right_after_the_start_is_heard():
    app = qo.App("memory:")
    app.task("work")(lambda: None)

    async def main():
        worker = asyncio.ensure_future(app.run(until_signal=False))
        await asyncio.sleep(0)
        app.shutdown()
        await asyncio.wait_for(worker, 30)

    asyncio.run(main())


def test_a_handler_that_holds_the_interpreter_keeps_its_lease(here):
    app = qo.App(here)
    attempts = []

    @app.task
    async def greedy(ctx: qo.Context, seconds: float) -> int:
        attempts.append(ctx.attempt)
        # It gives the interpreter to no other thread, as a long call into C does.
        end = time.monotonic() + seconds
        pattern = "a" * 22
        while time.monotonic() < end:
            re.match(r"(a+)+b", pattern)
        return ctx.attempt

    async def main():
        async with running(app, lease=2.0):
            job = await greedy.submit(4.0)
            return await job.result(timeout=60)

    assert asyncio.run(main()) == 1
    assert attempts == [1]


def test_progress_and_logs_are_shown():
    app = qo.App("memory:")
    go = threading.Event()

    @app.task
    def work(ctx: qo.Context) -> None:
        ctx.progress(0.5, "half")
        ctx.log("first line")
        logging.getLogger("shop").warning("second line")
        go.wait(30)
        with pytest.raises(qo.Invalid, match="must be a number from 0 to 1"):
            ctx.progress(2)

    async def main():
        async with running(app):
            job = await work.submit()
            await until(lambda: is_half(job), "progress")
            go.set()
            await job.result(timeout=30)
            logs = await job.logs()
            assert logs.startswith("first line\n")
            assert "WARNING shop: second line" in logs

    async def is_half(job):
        progress = await job.progress()
        return progress is not None and (progress.fraction, progress.note) == (0.5, "half")

    asyncio.run(main())


WORKER = """
import asyncio, sys, threading, time, qo
app = qo.App(sys.argv[1])
@app.task("polite")
async def polite():
    print("started", flush=True)
    await asyncio.sleep(float(sys.argv[2]))
@app.task("deaf")
async def deaf():
    print("started", flush=True)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
@app.task("deaf_thread")
def deaf_thread():
    print("started", flush=True)
    time.sleep(600)
@app.task("interrupted")
async def interrupted():
    raise KeyboardInterrupt
print("ready", flush=True)
asyncio.run(app.run(cancel_grace=0.3))
print("ended", flush=True)
"""


def started(url: str, task: str, seconds: float = 600.0) -> tuple[subprocess.Popen[str], qo.sync.JobHandle]:
    worker = start(WORKER, url, str(seconds))
    assert worker.stdout.readline() == "ready\n"
    with qo.sync.connect(url) as client:
        job = qo.sync.Client(url).job(client.submit(task, {}).id)
    assert worker.stdout.readline() == "started\n"
    return worker, job


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains(here, number):
    worker, job = started(here, "polite", 0.2)
    worker.send_signal(number)
    assert worker.communicate(timeout=30)[0] == "ended\n"
    assert (worker.returncode, job.info().state) == (0, "succeeded")


def test_the_second_signal_gives_jobs_back(here):
    worker, job = started(here, "polite")
    worker.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 30
    with qo.sync.connect(here) as client:
        while not client.workers()[0].draining:
            assert time.monotonic() < deadline
    worker.send_signal(signal.SIGTERM)
    assert worker.communicate(timeout=30)[0] == "ended\n"
    info = job.info()
    assert (worker.returncode, info.state, info.attempts_used) == (0, "pending", 0)


def test_the_third_signal_ends_the_process(here):
    worker, _ = started(here, "deaf")
    for _ in range(1000):
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(0.001)
        except subprocess.TimeoutExpired:
            continue
        break
    assert worker.returncode == 130


@pytest.mark.parametrize("task", ["deaf", "deaf_thread"])
def test_a_handler_that_does_not_stop_ends_the_process_with_70(here, task):
    worker, job = started(here, task)
    job.cancel()
    assert worker.wait(30) == 70


def test_a_keyboard_interrupt_in_a_handler_drains(here):
    worker = start(WORKER, here, "1")
    assert worker.stdout.readline() == "ready\n"
    with qo.sync.connect(here) as client:
        job = client.submit("interrupted", {}, max_attempts=1)
        assert worker.communicate(timeout=30)[0] == "ended\n"
        assert (worker.returncode, job.info().attempts[0].error.splitlines()[0]) == (0, "KeyboardInterrupt")


@pytest.mark.parametrize("is_async", [True, False])
def test_a_stuck_handler_can_be_told_to_the_program_instead(is_async):
    app = qo.App("memory:")
    stuck: list[str] = []
    started_: list[int] = []
    go = threading.Event()

    async def deaf() -> None:
        started_.append(1)
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def deaf_thread() -> None:
        started_.append(1)
        go.wait(30)

    task = app.task("deaf")(deaf if is_async else deaf_thread)

    async def main():
        on_loop = asyncio.current_task()

        def tell(ctx: qo.Context) -> None:
            assert asyncio.get_running_loop() is on_loop.get_loop()
            stuck.append(ctx.job)
            go.set()

        worker = asyncio.ensure_future(app.run(until_signal=False, on_stuck=tell, cancel_grace=0.1))
        job = await task.submit()
        await until(lambda: is_there(started_), "started")
        await job.cancel()
        await until(lambda: is_there(stuck), "told")
        app.shutdown()
        await asyncio.wait_for(worker, 30)
        return job.id

    assert [asyncio.run(main())] == stuck


def test_many_starts_and_stops_leave_nothing_behind():
    ran = run(
        """
        import asyncio, gc, os, qo, threading
        app = qo.App("memory:")
        @app.task("work")
        async def work() -> int:
            return 1
        @app.task("threaded")
        def threaded() -> int:
            return 2
        async def once():
            working = asyncio.ensure_future(app.run(until_signal=False))
            jobs = [await work.submit(), await threaded.submit()]
            assert [await job.result(timeout=30) for job in jobs] == [1, 2]
            app.shutdown()
            await working
        asyncio.run(once())
        before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        for _ in range(100):
            asyncio.run(once())
        gc.collect()
        print(threading.active_count())
        print(len(os.listdir("/proc/self/fd")) <= before[0], len(os.listdir("/proc/self/task")) <= before[1])
        """
    )
    assert (ran.stdout, ran.stderr) == ("1\nTrue True\n", ""), ran


def test_many_tasks_sleep_at_once_and_take_little_memory():
    ran = run(
        """
        import asyncio, resource, time, qo
        app = qo.App("memory:")
        @app.task("nap")
        async def nap() -> None:
            await asyncio.sleep(1)
        async def main():
            jobs = await nap.submit_many([{}] * 5000)
            began = time.monotonic()
            options = {"max_concurrent_tasks": 5000, "claim_batch_size": 5000}
            working = asyncio.ensure_future(app.run(until_signal=False, **options))
            for job in jobs:
                await job.result(timeout=60)
            took = time.monotonic() - began
            app.shutdown()
            await working
            print(took < 10, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 300 * 1024, took)
        asyncio.run(main())
        """
    )
    assert ran.stdout.startswith("True True"), ran


@pytest.mark.parametrize("is_async", [True, False])
def test_an_error_that_is_no_utf8_loses_no_job_and_ends_no_thread(is_async):
    app = qo.App("memory:")

    def fail(ctx: qo.Context) -> None:
        ctx.log("log \udc80")
        ctx.progress(0.5, "note \udc80")
        raise ValueError("caf\udce9")

    async def fail_on_loop(ctx: qo.Context) -> None:
        fail(ctx)

    bad = app.task("bad", max_attempts=1)(fail_on_loop if is_async else fail)

    @app.task("good")
    def good() -> int:
        return 1

    async def main():
        async with running(app, max_concurrent_tasks=1):
            job = await bad.submit()
            with pytest.raises(qo.JobFailed, match=r"caf\\udce9"):
                await job.result(timeout=20)
            assert await (await good.submit()).result(timeout=20) == 1
            assert "log \\udc80" in await job.logs()

    asyncio.run(main())


class Native:
    """The extension's worker, which refuses some outcomes."""

    def __init__(self, native):
        self._native = native

    def __getattr__(self, name):
        return getattr(self._native, name)

    def done(self, is_sync, batch):
        if any("bad" in text for _, _, text, _ in batch if "passed on" not in text):
            raise ValueError("bad text")
        self._native.done(is_sync, batch)


@pytest.mark.parametrize("is_async", [True, False])
def test_an_outcome_that_is_refused_takes_no_other_with_it(is_async, monkeypatch):
    app = qo.App("memory:")

    def echo(text: str) -> str:
        return text

    async def echo_on_loop(text: str) -> str:
        return text

    task = app.task("echo", max_attempts=1)(echo_on_loop if is_async else echo)
    made = qo._worker._qo.Worker
    monkeypatch.setattr(qo._worker._qo, "Worker", lambda *given: Native(made(*given)))

    async def main():
        jobs = await task.submit_many([{"text": text} for text in ("a", "bad", "c")])
        async with running(app):
            assert [await jobs[at].result(timeout=20) for at in (0, 2)] == ["a", "c"]
            with pytest.raises(qo.JobFailed, match="could not be passed on: ValueError: bad text"):
                await jobs[1].result(timeout=20)

    asyncio.run(main())


TWO = """
    import asyncio, signal, qo
    apps = [qo.App("memory:"), qo.App("memory:")]
    for app in apps:
        @app.task("nothing")
        async def nothing() -> None: ...
    former = []
    signal.signal(signal.SIGTERM, lambda *_: former.append(1))
    async def main():
        workers = [asyncio.ensure_future(app.run()) for app in apps]
        for app in apps:
            await (await app.client.submit("nothing", {})).result(timeout=20)
        if STOPS_ONE:
            apps[0].shutdown()
            await workers[0]
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*workers), 10)
        assert former == []
        signal.raise_signal(signal.SIGTERM)
        assert former == [1]
    asyncio.run(main())
    print("ended")
"""


@pytest.mark.parametrize("stops_one", [False, True])
def test_a_signal_ends_all_workers_of_a_process(stops_one):
    done = run(TWO.replace("STOPS_ONE", str(stops_one)))
    assert done.stdout == "ended\n", done.stderr


def test_a_signal_handler_of_the_event_loop_is_not_restored_without_it():
    app = qo.App("memory:")

    @app.task("nothing")
    async def nothing() -> None: ...

    async def main():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
        worker = asyncio.ensure_future(app.run())
        await (await nothing.submit()).result(timeout=20)
        app.shutdown()
        await worker
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    asyncio.run(main())


def test_a_thread_that_cannot_be_started_loses_no_job(monkeypatch):
    app = qo.App("memory:")

    @app.task("name")
    def name() -> str:
        return threading.current_thread().name

    begin, begun = threading.Thread.start, []

    def only_one(thread: threading.Thread) -> None:
        if thread.name.startswith("qo-handler"):
            begun.append(thread)
            if len(begun) != 2:
                raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", only_one)

    async def main():
        async with running(app):
            jobs = await name.submit_many([{}, {}, {}])
            return {await job.result(timeout=20) for job in jobs}

    assert asyncio.run(main()) == {"qo-handler-1"}
    assert len(begun) > 2


def test_each_worker_of_an_app_leaves_its_own_lifespan():
    left = []

    @asynccontextmanager
    async def lifespan(_):
        mine = asyncio.current_task().get_name()
        yield
        left.append((mine, asyncio.current_task().get_name()))

    app = qo.App("memory:", lifespan=lifespan)

    @app.task("nothing")
    async def nothing() -> None: ...

    async def main():
        first, second = (asyncio.create_task(app.run(until_signal=False), name=name) for name in ("first", "second"))
        await asyncio.sleep(0.2)
        first.cancel()
        await asyncio.wait([first])
        app.shutdown()
        await second

    asyncio.run(main())
    assert left == [("first", "first"), ("second", "second")]


def test_on_stuck_that_raises_is_logged(caplog):
    app = qo.App("memory:")
    begun, go = [], asyncio.Event()

    @app.task("deaf")
    async def deaf() -> None:
        begun.append(1)
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def wrong(ctx: qo.Context) -> None:
        go.set()
        raise ZeroDivisionError

    async def main():
        loud = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: loud.append(what))
        async with running(app, on_stuck=wrong, cancel_grace=0.1):
            job = await deaf.submit()
            await until(lambda: is_there(begun), "started")
            await job.cancel()
            await asyncio.wait_for(go.wait(), 20)
        return loud

    assert asyncio.run(main()) == []
    assert "on_stuck raised" in caplog.text


def test_a_handler_that_is_cancelled_twice_is_recorded():
    app = qo.App("memory:")
    tasks = []

    @app.task("twice")
    async def twice() -> int:
        tasks.append(asyncio.current_task())
        if len(tasks) > 1:
            return len(tasks)
        # The second one comes while the worker finds out what the first one meant.
        loop = asyncio.get_running_loop()
        loop.call_soon(tasks[0].cancel)
        loop.call_soon(loop.call_soon, tasks[0].cancel)
        await asyncio.sleep(20)
        return 0

    async def main():
        async with running(app):
            return await (await twice.submit()).result(timeout=20)

    assert asyncio.run(main()) == 2
