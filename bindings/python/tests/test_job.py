"""Jobs as classes: constructors, limits, the app that runs them."""

import asyncio
import dataclasses
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import psycopg
import pytest
import qo
import qo.testing
from conftest import running, url_of
from qo import _app


def limited(app: qo.App) -> type[qo.Job]:
    """A class whose jobs say their key and limit."""

    class Limited(qo.Job, app=app):
        def __init__(self, key: str = "", limit: int | None = None) -> None:
            self.key = key
            self.limit = limit

        def run(self) -> None:
            pass

        def get_concurrency_key(self) -> str:
            return self.key

        def get_concurrency_limit(self) -> int | None:
            return self.limit

    return Limited


def how_many(kind: type[qo.Job], times: int, *arguments: object, **options: object) -> int:
    """How many of so many jobs were let in."""
    return sum(kind(*arguments).run_in_worker(**options) is not None for _ in range(times))


def test_a_class_runs_as_a_job_and_its_result_comes_back(url):
    app = qo.App(url)

    class Greet(qo.Job, app=app):
        def __init__(self, name: str, times: int = 1, *, mark: str = "!") -> None:
            self.text = name * times + mark

        async def run(self) -> str:
            return f"{self.text} {qo.current().attempt}"

    async def main():
        async with running(app):
            jobs = [Greet("a"), Greet("b", 2), Greet(name="c", mark="?")]
            handles = [await job.arun_in_worker() for job in jobs]
            return [await handle.result(timeout=30) for handle in handles]

    assert asyncio.run(main()) == ["a! 1", "bb! 1", "c? 1"]


def test_a_plain_run_has_a_thread_and_may_take_the_context():
    app = qo.App("memory:")

    class Where(qo.Job, app=app):
        def run(self, ctx: qo.Context) -> tuple[str, str, bool]:
            return ctx.task, threading.current_thread().name, ctx is qo.current()

    async def main():
        async with running(app):
            handle = await Where().arun_in_worker()
            return await handle.result(timeout=30)

    task, thread, is_current = asyncio.run(main())
    assert task == f"{__name__}.test_a_plain_run_has_a_thread_and_may_take_the_context.Where"
    assert thread != "MainThread"
    assert is_current


def test_the_arguments_are_those_of_the_outermost_constructor():
    app = qo.App("memory:")

    class Base(qo.Job, app=app):
        def __init__(self, path: str) -> None:
            self.path = path

        def run(self) -> str:
            return self.path

    class Derived(Base):
        def __init__(self, user_id: int) -> None:
            super().__init__(f"/users/{user_id}")
            self.user_id = "changed later"

    async def main():
        handle = await Derived(7).arun_in_worker()
        info = await handle.info()
        assert info.payload == {"user_id": 7}
        async with running(app):
            return await handle.result(timeout=30)

    assert asyncio.run(main()) == "/users/7"
    assert {name.rsplit(".", 1)[-1] for name in app.tasks} >= {"Base", "Derived"}


def test_arguments_come_back_as_annotated():
    app = qo.App("memory:")

    @dataclasses.dataclass
    class Move(qo.Job, app=app):
        order: uuid.UUID
        at: datetime
        by: timedelta = timedelta(hours=1)

        async def run(self) -> datetime:
            assert isinstance(self.order, uuid.UUID)
            return self.at + self.by

    @dataclasses.dataclass(slots=True)
    class Small(qo.Job, app=app, name="small"):
        sizes: list[int]

        async def run(self) -> int:
            return sum(self.sizes)

    at = datetime(2026, 11, 18, tzinfo=timezone.utc)

    async def main():
        async with running(app):
            move = await Move(uuid.uuid4(), at).arun_in_worker()
            small = await Small([1, 2]).arun_in_worker()
            return await move.result(timeout=30), await small.result(timeout=30)

    assert asyncio.run(main()) == (at + timedelta(hours=1), 3)
    assert "small" in app.tasks


def test_any_client_can_submit_to_a_class():
    app = qo.App("memory:")

    class Add(qo.Job, app=app, name="add"):
        def __init__(self, a: int, b: int = 10) -> None:
            self.sum = a + b

        def run(self) -> int:
            return self.sum

    async def main():
        good = await app.client.submit("add", {"a": 1})
        bad = await app.client.submit("add", {"a": "x"})
        async with running(app):
            assert await good.result(timeout=30) == 11
            with pytest.raises(qo.JobFailed, match="must be int"):
                await bad.result(timeout=30)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key", "limit", "let_in"),
    [("", None, 4), ("", 2, 2), ("k", None, 4), ("k", 2, 2), ("", 0, 0), ("k", 0, 0)],
)
def test_key_and_limit_decide_how_many_are_let_in(url, key, limit, let_in):
    assert how_many(limited(qo.App(url)), 4, key, limit) == let_in


def test_each_key_has_its_own_limit():
    kind = limited(qo.App("memory:"))
    assert [how_many(kind, 3, key, 1) for key in ("a", "b")] == [1, 1]


def test_without_a_key_all_jobs_of_the_class_count():
    kind = limited(qo.App("memory:"))
    assert how_many(kind, 3, "a") == 3
    assert how_many(kind, 3, "", 5) == 2


def test_the_newest_limit_counts(url):
    app = qo.App(url)
    kind = limited(app)
    assert how_many(kind, 3, "k", 2) == 2
    assert how_many(kind, 3, "k", 4) == 2
    assert asyncio.run(app.client.concurrency.status(f"{next(iter(app.tasks))}/k")).limit == 4


def test_no_limit_after_a_limit_takes_it_back(url):
    app = qo.App(url)
    kind = limited(app)
    most, now = 0, 0
    enough = asyncio.Event()

    class Busy(kind, app=app):
        async def run(self) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            if most == 3:
                enough.set()
            await asyncio.wait_for(enough.wait(), 20)
            now -= 1

    async def main():
        handles = [await Busy("k", limit).arun_in_worker(on_limit="wait") for limit in (1, 1, None)]
        async with running(app):
            for handle in handles:
                await handle.result(timeout=30)

    asyncio.run(main())
    assert most == 3


def test_after_no_limit_the_group_shows_none(url):
    app = qo.App(url)
    kind = limited(app)
    kind("k", 2).run_in_worker()
    group = f"{next(iter(app.tasks))}/k"
    assert asyncio.run(app.client.concurrency.status(group)).limit == 2
    kind("k", None).run_in_worker()
    assert asyncio.run(app.client.concurrency.status(group)).limit is None
    with pytest.raises(qo.Invalid, match="clear_limit"):
        kind("k", 2).run_in_worker(limit=2, clear_limit=True)


def test_a_job_without_a_limit_is_never_dropped():
    app = qo.App("memory:")

    class Free(qo.Job, app=app):
        def run(self) -> None:
            pass

    asyncio.run(app.client.concurrency.set("cluster", 1))
    assert how_many(Free, 3) == 3
    assert how_many(limited(app), 3, "k") == 3


def test_on_limit_and_the_key_are_options_of_a_submit():
    kind = limited(qo.App("memory:"))
    assert how_many(kind, 1, "k", 1) == 1
    with pytest.raises(qo.LimitReached):
        kind("k", 1).run_in_worker(on_limit="reject")
    assert kind("k", 1).run_in_worker(on_limit="wait") is not None
    assert kind("k", 1).run_in_worker(concurrency_key="other") is not None
    assert kind("k", 1).run_in_worker(limit=3) is not None
    with pytest.raises(qo.Invalid, match="is another name of key"):
        kind("k", 1).run_in_worker(concurrency_key="a", key="b")


def test_many_submits_at_once_let_in_no_more_than_the_limit(url):
    kind = limited(qo.App(url))
    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(lambda _: kind("k", 3).run_in_worker(), range(24)))
    assert sum(handle is not None for handle in handles) == 3


def test_many_jobs_of_classes_are_submitted_in_one_call(url):
    app = qo.App(url)
    kind = limited(app)

    async def main():
        return await app.submit_many([kind("k", 2).new_job() for _ in range(3)] + [kind().new_job(priority=5)])

    assert [handle is not None for handle in asyncio.run(main())] == [True, True, False, True]


def test_a_job_is_part_of_a_transaction(tmp_path):
    url = url_of("postgres", tmp_path)
    kind = limited(qo.App(url))
    server = url.partition("?")[0]
    with psycopg.connect(server) as connection:
        with connection.transaction():
            kept = kind("k", 2).submit_in(connection)
            assert kind("k", 2).submit_in(connection, delay=60) is not None
            assert kind("k", 2).submit_in(connection) is None
        with connection.transaction(force_rollback=True):
            gone = kind("other", 1).submit_in(connection)
    assert kept.info().key == "k"
    with pytest.raises(qo.NotFound):
        gone.info()

    async def main():
        async with await psycopg.AsyncConnection.connect(server) as connection, connection.transaction():
            return await kind("async", 1).submit_in(connection)

    assert asyncio.run(main()) is not None


def test_a_unique_job_is_there_once_waiting_or_running(url):
    app = qo.App(url)
    started, end = threading.Event(), threading.Event()

    class Sync(qo.Job, app=app):
        unique = True

        def __init__(self, user_id: int) -> None:
            self.user_id = user_id

        def get_concurrency_key(self) -> str:
            return f"user-{self.user_id}"

        def run(self) -> int:
            started.set()
            assert end.wait(20)
            return self.user_id

    async def main():
        first = await Sync(1).arun_in_worker()
        assert await Sync(1).arun_in_worker() is None
        assert await Sync(2).arun_in_worker() is not None
        async with running(app):
            await asyncio.to_thread(started.wait, 20)
            assert await Sync(1).arun_in_worker() is None
            end.set()
            assert await first.result(timeout=30) == 1
            assert await Sync(1).arun_in_worker() is not None
        with pytest.raises(qo.Invalid, match="is unique"):
            await Sync(1).arun_in_worker(on_limit="wait")

    asyncio.run(main())


def test_a_unique_job_without_a_key_is_the_only_one_of_its_class():
    app = qo.App("memory:")

    class Nightly(qo.Job, app=app):
        unique = True

        def run(self) -> None:
            pass

    assert how_many(Nightly, 3) == 1


def test_queue_priority_and_retries_are_those_of_the_class():
    app = qo.App("memory:")

    class Report(qo.Job, app=app):
        queue = "reports"
        priority = 7
        retries = 4

        def __init__(self) -> None:
            # An attribute of an instance is the user's own.
            self.priority = "high"

        def run(self) -> None:
            pass

    async def main():
        usual = await (await Report().arun_in_worker()).info()
        other = await (await Report().arun_in_worker(queue="now", priority=1, retries=0, delay=60)).info()
        return usual, other

    usual, other = asyncio.run(main())
    assert (usual.queue, usual.priority, usual.max_attempts) == ("reports", 7, 5)
    assert (other.queue, other.priority, other.max_attempts) == ("now", 1, 1)
    assert other.raw["run_at"] >= usual.raw["run_at"] + 59_000


def test_what_run_raises_decides_about_the_next_attempt():
    app = qo.App("memory:")
    seen = []

    class Fragile(qo.Job, app=app):
        retries = 1
        backoff = qo.Backoff(base=0.01)
        fail_on = (KeyError,)

        def __init__(self, how: str) -> None:
            self.how = how

        def run(self) -> None:
            seen.append(self.how)
            raise KeyError(self.how) if self.how == "key" else OSError(self.how)

    async def main():
        handles = [await Fragile(how).arun_in_worker() for how in ("key", "os")]
        async with running(app):
            for handle in handles:
                with pytest.raises(qo.JobFailed, match="Error"):
                    await handle.result(timeout=30)

    asyncio.run(main())
    assert sorted(seen) == ["key", "os", "os"]


def test_a_constructor_that_fails_in_the_worker_is_a_failed_attempt():
    app = qo.App("memory:")

    class Picky(qo.Job, app=app, name="picky"):
        retries = 0

        def __init__(self, n: int) -> None:
            if n < 0:
                msg = "n is too small"
                raise LookupError(msg)

        def run(self) -> None:
            pass

    async def main():
        handle = await app.client.submit("picky", {"n": -1}, max_attempts=1)
        async with running(app):
            with pytest.raises(qo.JobFailed, match="n is too small"):
                await handle.result(timeout=30)

    asyncio.run(main())


def test_mistakes_in_a_class_are_refused_when_it_is_defined():
    app = qo.App("memory:")

    def run(self) -> None:
        pass

    def define(**members: object) -> type[qo.Job]:
        return type("Wrong", (qo.Job,), {"__module__": __name__, "run": run, **members}, app=app)

    for members, message in [
        ({"__init__": lambda self, *many: None}, "no \\*args"),
        ({"__init__": lambda self, a, /: None}, "no \\*args"),
        ({"__init__": lambda self, ctx: None}, "is a parameter of run"),
        ({"run": lambda self, amount: None}, "the constructor takes the others"),
        ({"unique": True, "get_concurrency_limit": lambda self: 3}, "leave out get_concurrency_limit"),
    ]:
        with pytest.raises(qo.Invalid, match=message):
            define(**members)
    assert app.tasks == {}


def test_mistakes_in_a_submit_are_refused_with_the_name():
    app = qo.App("memory:")
    kind = limited(app)
    for limit in (-1, 1.5, "3", True, 1_000_001):
        with pytest.raises(qo.Invalid, match=r"Limited\.get_concurrency_limit\(\)"):
            kind("k", limit).run_in_worker()
    with pytest.raises(qo.Invalid, match="there is no such option"):
        kind().run_in_worker(colour="red")
    with pytest.raises(qo.Invalid, match="key"):
        kind(object()).run_in_worker()
    with pytest.raises(TypeError):
        kind(1, 2, 3)

    class Bare(qo.Job, app=app):
        def run(self) -> None:
            pass

    with pytest.raises(TypeError, match="takes no arguments"):
        Bare(1)


def test_a_class_without_run_is_no_task():
    app = qo.App("memory:")

    class Base(qo.Job, app=app):
        retries = 9

    class Real(Base):
        def run(self) -> None:
            pass

    assert [name.rsplit(".", 1)[-1] for name in app.tasks] == ["Real"]
    assert Real().run_in_worker() is not None
    with pytest.raises(NotImplementedError, match="Base has no run"):
        Base().run_in_worker()


def test_the_sync_submit_refuses_to_block_an_event_loop():
    kind = limited(qo.App("memory:"))

    async def main():
        with pytest.raises(RuntimeError, match="arun_in_worker"):
            kind().run_in_worker()

    asyncio.run(main())


def test_two_classes_of_one_name_are_refused():
    app = qo.App("memory:")

    class One(qo.Job, app=app, name="same"):
        def run(self) -> None:
            pass

    with pytest.raises(qo.Invalid, match="declared twice"):

        class Two(qo.Job, app=app, name="same"):
            def run(self) -> None:
                pass


@pytest.fixture
def default_app():
    """An app that is the default for the time of a test."""
    before = list(_app._DEFAULT)
    app = qo.App("memory:")
    qo.set_default(app)
    yield app
    _app._DEFAULT[:] = before


class Early(qo.Job):
    """Stands here before any test has made an app."""

    def __init__(self, n: int) -> None:
        self.n = n

    async def run(self) -> int:
        return self.n + 1


def test_a_class_without_an_app_belongs_to_the_default_one(default_app):
    class Late(Early):
        async def run(self) -> int:
            return self.n * 10

    async def main():
        handles = [await Early(1).arun_in_worker(), await Late(2).arun_in_worker()]
        async with running(default_app):
            return [await handle.result(timeout=30) for handle in handles]

    assert asyncio.run(main()) == [2, 20]
    assert f"{__name__}.Early" in default_app.tasks


def test_a_worker_of_the_default_app_runs_classes_of_other_clients(default_app):
    async def main():
        handle = await default_app.client.submit(f"{__name__}.Early", {"n": 41})
        async with running(default_app):
            return await handle.result(timeout=30)

    assert asyncio.run(main()) == 42


def test_a_new_default_app_gets_the_classes_too(default_app):
    first = Early(1).run_in_worker()
    other = qo.App("memory:")
    qo.set_default(other)
    second = Early(1).run_in_worker()
    assert first is not None
    assert second is not None
    assert [len(asyncio.run(app.client.jobs())) for app in (default_app, other)] == [1, 1]


def test_without_an_app_a_submit_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(_app, "_DEFAULT", [])
    monkeypatch.setattr(_app, "_APPS", set())
    with pytest.raises(LookupError, match=r"qo\.set_default"):
        Early(1).run_in_worker()


def test_tasks_that_an_app_includes_may_be_the_app_of_a_class():
    tasks = qo.Tasks()

    class Included(qo.Job, app=tasks):
        def run(self) -> str:
            return "ran"

    with pytest.raises(LookupError):
        Included().run_in_worker()
    app = qo.App("memory:")
    app.include([tasks])
    assert Included().run_in_worker() is not None
    assert [name.rsplit(".", 1)[-1] for name in app.tasks] == ["Included"]


def test_a_schedule_runs_a_class_and_does_not_overlap():
    app = qo.testing.TestApp(now=datetime(2026, 11, 18, 1, tzinfo=timezone.utc))

    @dataclasses.dataclass
    class Nightly(qo.Job, app=app, name="nightly"):
        schedule = "0 3 * * *"
        timezone = "Europe/Berlin"
        queue = "night"
        retries = 0
        days: int = 1

        async def run(self) -> int:
            return self.days

    async def main():
        assert await app.drain() == []
        [schedule] = await app.client.schedules()
        assert (schedule.schedule, schedule.task) == ("nightly", "nightly")
        assert schedule.next_at == datetime(2026, 11, 18, 2, tzinfo=timezone.utc)
        app.clock.move(hours=1, minutes=1)
        [first] = await app.drain()
        assert (first.result, first.info.queue, first.info.max_attempts) == (1, "night", 1)
        live = await app.client.trigger_schedule("nightly")
        with pytest.raises(qo.LimitReached):
            await app.client.trigger_schedule("nightly")
        # The next tick finds that job waiting, and is skipped.
        app.clock.move(days=1)
        assert [ran.job for ran in await app.drain()] == [live.id]

    asyncio.run(main())


def test_a_schedule_needs_a_constructor_that_does_without_arguments():
    app = qo.App("memory:")

    class Monthly(qo.Job, app=app):
        schedule = "@monthly"

        def __init__(self, month: int) -> None:
            self.month = month

        def run(self) -> None:
            pass

    with pytest.raises(qo.Invalid, match=r"Monthly\.schedule.*month"):
        asyncio.run(app.run(until_signal=False))


SHOP = """
import qo

class Greet(qo.Job):
    def __init__(self, name: str, times: int = 1) -> None:
        self.text = name * times

    def run(self) -> str:
        return self.text

app = qo.App("file:store")
"""


@pytest.mark.parametrize("flags", [[], ["--processes=2"]], ids=["threads", "processes"])
def test_the_command_line_submits_to_a_class_and_runs_it(tmp_path, flags):
    (tmp_path / "shop.py").write_text(SHOP)
    line = [sys.executable, "-m", "qo"]
    place = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen([*line, "worker", "shop:app", *flags], **place) as worker:
        try:
            payload = '{"name": "a", "times": 3}'
            submit = [*line, "submit", "shop.Greet", payload, "--wait", "--store", "file:store"]
            submitted = subprocess.run(submit, **place, timeout=60, check=False)
        finally:
            worker.terminate()
            said = worker.communicate(timeout=60)[0]
    assert submitted.returncode == 0, said
    assert "aaa" in submitted.stdout, submitted.stdout


def test_a_job_in_a_transaction_has_a_handle_of_its_connections_kind(monkeypatch):
    app = qo.App("memory:")

    class Nothing(qo.Job, app=app):
        def run(self) -> None: ...

    monkeypatch.setattr("qo._transaction.submit_in", lambda *given: given[-1]([]))
    monkeypatch.setattr("qo._job.read_outcomes", lambda *given: [given[-1]])
    for is_async, made in ((True, qo.JobHandle), (False, qo.sync.JobHandle)):
        monkeypatch.setattr("qo._transaction.is_async", lambda _, answer=is_async: answer)
        assert Nothing().submit_in("default") is made
