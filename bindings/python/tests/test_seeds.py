"""What people bring from other queues runs here under the names that they know."""

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import qo
from conftest import running, until
from qo import AppConfig, CustomQueueConfig, PostgresConfig, QueueMode


class Gauge:
    """How many handlers run, and the most that ever did."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, name: str) -> None:
        with self._lock:
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])

    def leave(self, name: str) -> None:
        with self._lock:
            self.now[name] -= 1

    async def hold(self, name: str, most: int) -> None:
        """Be one of those that run, until `most` of them have run at once. The first to leave gives way to others."""

        async def were_there() -> bool:
            return self.most[name] >= most

        self.enter(name)
        await until(were_there, f"{most} of {name} at once")
        # While they stay, one too many would come.
        await asyncio.sleep(0.05)
        self.leave(name)


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder."""
    line = [sys.executable, "-m", "qo", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


# A worker and handlers that take `(data, ctx)`.


async def finish(worker: qo.Worker, handles: list[qo.JobHandle]) -> list[object]:
    """Run a worker until these jobs have ended, and return their results."""
    at_work = asyncio.ensure_future(worker.run(until_signal=False))
    try:
        return [await handle.result(timeout=60) for handle in handles]
    finally:
        worker.shutdown()
        await asyncio.wait_for(at_work, 30)


def test_a_worker_runs_no_more_than_max_concurrent(url):
    gauge = Gauge()

    async def main():
        queue = await qo.connect(url)
        worker = qo.Worker(queue, "worker-1", ["0", "1", "f"])

        @worker.task("call_external_api", max_concurrent=10)
        async def call_api(data, ctx):
            await gauge.hold("api", 10)
            return [data["n"], ctx.attempt]

        async def send(data, ctx):
            assert qo.current() is ctx
            await gauge.hold("mail", 3)
            return data

        worker.task("send_email", max_concurrent=3)(send)
        handles = [await queue.submit("call_external_api", {"n": n}) for n in range(25)]
        handles += [await queue.submit("send_email", "hello") for _ in range(9)]
        results = await finish(worker, handles)
        await queue.close()
        return results

    results = asyncio.run(main())
    assert results == [[n, 1] for n in range(25)] + ["hello"] * 9
    assert gauge.most == {"api": 10, "mail": 3}


def test_a_submit_may_bring_the_group_and_its_limit(url):
    gauge = Gauge()

    async def main():
        queue = await qo.connect(url)
        worker = qo.Worker(queue, "worker-1")

        @worker.task("process_heavy")
        async def heavy(data, ctx):
            assert ctx.group == "heavy_processing"
            status = await queue.concurrency.status("heavy_processing")
            assert isinstance(status, qo.ConcurrencyStatus)
            assert (status.group, status.limit) == ("heavy_processing", 5)
            assert 1 <= status.active <= 5
            mine = next(slot for slot in status.slots if slot.task_id == ctx.job)
            assert isinstance(mine, qo.SlotInfo)
            assert (mine.slot_id, mine.worker_id) == (ctx.fence_token, "worker-1")
            await gauge.hold("heavy", 5)
            return data

        options = {"concurrency_group": "heavy_processing", "concurrency_limit": 5}
        handles = [await queue.submit("process_heavy", n, **options) for n in range(12)]
        return await finish(worker, handles)

    assert asyncio.run(main()) == list(range(12))
    assert gauge.most == {"heavy": 5}


def test_a_lease_needs_no_extension_but_can_be_asked_for():
    async def main():
        queue = await qo.connect("memory:")
        worker = qo.Worker(queue, "worker-1")

        @worker.task("long")
        async def long(_data, ctx):
            end = await ctx.extend_lease(300)
            assert end == ctx.lease_until
            return end.timestamp() > time.time()

        return await finish(worker, [await queue.submit("long")])

    assert asyncio.run(main()) == [True]


LIMITS = """
[concurrency]
default_lease_duration_secs = 300
[concurrency.limits]
call_external_api = 10
send_email = 50
heavy_processing = 2
"""


def test_limits_in_the_file_count_before_those_of_the_code(tmp_path, monkeypatch):
    (tmp_path / ".qo.toml").write_text(LIMITS)
    monkeypatch.chdir(tmp_path)
    gauge = Gauge()
    app = qo.App()

    @app.task("heavy_processing", max_concurrent=7)
    async def heavy() -> None:
        await gauge.hold("heavy", 2)

    async def main():
        handles = await heavy.submit_many([{}] * 8)
        async with running(app):
            for handle in handles:
                await handle.result(timeout=60)
            statuses = [await app.client.concurrency.status(group) for group in ("heavy_processing", "send_email")]
        await app.close()
        return [status.limit for status in statuses]

    assert asyncio.run(main()) == [2, 50]
    assert gauge.most == {"heavy": 2}


def test_the_command_line_shows_sets_and_releases(tmp_path):
    app = qo.App(f"file:{tmp_path / '.qo'}")
    stopped = []

    @app.task("stuck", max_concurrent=1, max_attempts=1)
    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(qo.current().cancel_reason)
            raise

    async def look_and_release(job: qo.JobHandle) -> None:
        async def runs() -> bool:
            return (await job.info()).state == "running"

        await until(runs, "the job runs")
        ask = asyncio.to_thread
        status = await ask(command, tmp_path, "concurrency", "status", "stuck", "--json")
        assert status.returncode == 0, status.stderr
        token = (await app.client.concurrency.status("stuck")).slots[0].slot_id
        assert str(token) in status.stdout
        raised = await ask(command, tmp_path, "concurrency", "set", "stuck", "--limit", "4")
        assert raised.returncode == 0, raised.stderr
        assert (await app.client.concurrency.status("stuck")).limit == 4
        released = await ask(command, tmp_path, "concurrency", "release", "stuck", str(token), "--force")
        assert released.returncode == 0, released.stderr
        with pytest.raises(qo.JobFailed, match="released by operator"):
            await job.result(timeout=30)

    async def main():
        job = await stuck.submit()
        async with running(app):
            try:
                await look_and_release(job)
            finally:
                await job.cancel()
        await app.close()

    asyncio.run(main())
    assert len(stopped) == 1


# Jobs as classes, with keys and limits.


def test_a_class_limits_all_its_jobs(url):
    app = qo.App(url)

    class HeavyProcessingJob(qo.Job, app=app):
        def run(self) -> None:
            pass

        def get_concurrency_limit(self) -> int:
            return 5

    handles = [HeavyProcessingJob().run_in_worker() for _ in range(7)]
    assert [handle is not None for handle in handles] == [True] * 5 + [False] * 2


def test_a_class_limits_the_jobs_of_each_user_and_of_each_database(url):
    app = qo.App(url)

    class ProcessUserDataJob(qo.Job, app=app):
        def __init__(self, user_id):
            self.user_id = user_id

        def run(self):
            return f"user {self.user_id}"

        def get_concurrency_key(self):
            return f"user-{self.user_id}"

        def get_concurrency_limit(self):
            return 1

    class BackupDatabaseJob(qo.Job, app=app):
        def __init__(self, database_name):
            self.database_name = database_name

        async def run(self):
            return f"backup of {self.database_name}"

        def get_concurrency_key(self):
            return f"db-{self.database_name}"

        def get_concurrency_limit(self):
            return 2

    jobs = [ProcessUserDataJob(user_id=n) for n in (1, 1, 2)] + [BackupDatabaseJob(name) for name in "aaab"]

    async def main():
        handles = [await job.arun_in_worker() for job in jobs]
        assert [handle is not None for handle in handles] == [True, False, True, True, True, False, True]
        async with running(app):
            results = [await handle.result(timeout=60) for handle in handles if handle is not None]
            again = await ProcessUserDataJob(1).arun_in_worker()
            return [*results, await again.result(timeout=60)]

    assert asyncio.run(main()) == [
        "user 1",
        "user 2",
        "backup of a",
        "backup of a",
        "backup of b",
        "user 1",
    ]


def test_a_retry_counts_and_keeps_its_key():
    app = qo.App("memory:")
    end = asyncio.Event()

    class MyJob(qo.Job, app=app):
        retries = 3
        backoff = qo.Backoff(base=0.01)

        def __init__(self, id: int) -> None:  # noqa: A002
            self.id = id

        async def run(self) -> str | None:
            if qo.current().attempt == 1:
                raise OSError
            await asyncio.wait_for(end.wait(), 20)
            return qo.current().key

        def get_concurrency_key(self) -> str:
            return f"my-job-{self.id}"

        def get_concurrency_limit(self) -> int:
            return 1

    async def main():
        first = await MyJob(4).arun_in_worker()
        async with running(app):

            async def is_retried() -> bool:
                return (await first.info()).attempts_used == 2

            await until(is_retried, "the second attempt")
            assert await MyJob(4).arun_in_worker() is None
            end.set()
            return await first.result(timeout=30)

    assert asyncio.run(main()) == "my-job-4"


def test_a_limit_of_zero_holds_everything_for_maintenance():
    app = qo.App("memory:")

    class Import(qo.Job, app=app):
        def run(self) -> None:
            pass

        def get_concurrency_limit(self) -> int:
            return 0

    assert Import().run_in_worker() is None
    held = Import().run_in_worker(on_limit="wait")
    assert next(reason.kind for reason in held.explain().reasons) == "held_by_limit_zero"


# An app with queues, caps and prefetching.


def test_queues_have_priorities_and_limits(url):
    gauge = Gauge()
    order: list[str] = []
    config = AppConfig(
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="stripe", priority=1, max_concurrency=3),
            CustomQueueConfig(name="email", priority=50, max_concurrency=10),
            CustomQueueConfig(name="reports", priority=100, max_concurrency=2),
        ],
        cluster_wide_cap=4,
        broker=url,
    )
    app = qo.App(config)

    @app.task
    async def work(queue: str) -> None:
        order.append(queue)
        gauge.enter("all")
        await gauge.hold(queue, 3 if queue == "stripe" else 1)
        gauge.leave("all")

    async def main():
        handles = [
            await work.options(queue=queue).submit(queue) for queue in ("reports", "email", "stripe") for _ in range(6)
        ]
        async with running(app):
            for handle in handles:
                await handle.result(timeout=60)
            cap = await app.client.concurrency.status("cluster")
        return cap.limit

    assert asyncio.run(main()) == 4
    assert gauge.most["all"] == 4
    assert gauge.most["stripe"] == 3
    assert gauge.most["reports"] <= 2
    # One claim takes the first four. They start side by side.
    assert sorted(order[:4]) == ["email", "stripe", "stripe", "stripe"]


def test_prefetching_claims_ahead_and_never_breaks_a_limit(url):
    gauge = Gauge()
    app = qo.App(AppConfig(prefetch_buffer=4, claim_lease_ms=5000, broker=url))

    @app.task(max_concurrent=2)
    async def work() -> None:
        await gauge.hold("work", 2)

    async def main():
        handles = await work.submit_many([{}] * 20)
        async with running(app, max_concurrent_tasks=3):
            for handle in handles:
                await handle.result(timeout=60)

    asyncio.run(main())
    assert gauge.most == {"work": 2}


def test_a_default_app_needs_only_its_broker():
    config = AppConfig(queue_mode=QueueMode.DEFAULT, broker=PostgresConfig(database_url="postgresql://db/shop"))
    app = qo.App(config)
    assert app.config is config
    assert config.store == "postgresql://db/shop"


INSTANCE = """
import asyncio
import os
import qo

app = qo.App(
    qo.AppConfig(
        queue_mode=qo.QueueMode.DEFAULT,
        cluster_wide_cap=20,
        broker=f"file:{os.environ['HERE']}/store",
    )
)

@app.task("where")
def where() -> int:
    return os.getpid()
"""


def test_a_worker_of_an_instance_says_its_concurrency_when_it_starts(tmp_path, monkeypatch):
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "__init__.py").write_text("")
    (tmp_path / "myapp" / "instance.py").write_text(INSTANCE)
    monkeypatch.setenv("HERE", str(tmp_path))
    flags = ["--processes=4", "--max-claim-batch=2", "--max-claim-per-worker=10"]

    async def main():
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "qo",
            "worker",
            "myapp.instance:app",
            *flags,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            client = await qo.connect(f"file:{tmp_path}/store")
            jobs = [await client.submit("where") for _ in range(4)]
            results = [await job.result(timeout=60) for job in jobs]
            await client.close()
        finally:
            worker.terminate()
            text = (await asyncio.wait_for(worker.communicate(), 60))[0].decode()
        return results, worker.pid, worker.returncode, text

    results, pid, code, text = asyncio.run(main())
    assert pid not in results
    assert code == 0, text
    line = "Concurrency config: processes=4, cluster_wide_cap=20, max_claim_per_worker=10, max_claim_batch=2"
    assert line in text
