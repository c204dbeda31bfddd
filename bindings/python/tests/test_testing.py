"""What `qo.testing` gives to tests: jobs in memory, time that moves, a worker that returns."""

import asyncio
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from importlib.metadata import entry_points
from textwrap import dedent

import pytest
import qo
import qo.sync
import qo.testing

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def app():
    with qo.testing.TestApp(now=NOON) as made:
        yield made


def drained(app, *, is_sync):
    """What is due has run, with asyncio or without."""
    return app.drain_sync() if is_sync else asyncio.run(app.drain())


both = pytest.mark.parametrize("is_sync", [False, True], ids=["drain", "drain_sync"])


@both
def test_drain_runs_what_is_due_and_returns_what_came_of_it(app, is_sync):
    @app.task("double")
    async def double(number: int) -> int:
        return 2 * number

    @app.task("halve")
    def halve(number: int) -> float:
        return number / 2

    jobs = [double.submit_sync(4), halve.submit_sync(4)]
    ran = drained(app, is_sync=is_sync)
    assert [(one.job, one.task, one.attempt, one.outcome, one.result) for one in ran] == [
        (jobs[0].id, "double", 1, "succeeded", 8),
        (jobs[1].id, "halve", 1, "succeeded", 2.0),
    ]
    assert jobs[0].result(timeout=1) == 8
    assert drained(app, is_sync=is_sync) == [], "each attempt is told once"


@both
def test_drain_runs_what_its_jobs_submit(app, is_sync):
    @app.task("count")
    async def count(left: int) -> None:
        if left:
            await count.submit(left - 1)

    @app.task("count_sync")
    def count_sync(left: int) -> None:
        if left:
            count_sync.submit_sync(left - 1)

    count.submit_sync(3)
    count_sync.submit_sync(3)
    assert sorted(one.task for one in drained(app, is_sync=is_sync)) == ["count"] * 4 + ["count_sync"] * 4


@both
def test_what_fails_is_seen_in_the_outcomes(app, is_sync):
    @app.task("fragile", max_attempts=2)
    def fragile(why: str) -> None:
        if why == "for good":
            raise qo.Fail(why)
        raise ValueError(why)

    fragile.submit_sync("for good")
    fragile.submit_sync("perhaps")
    ran = drained(app, is_sync=is_sync)
    assert [one.outcome for one in ran.failed] == ["failed", "retried"]
    assert "for good" in ran[0].error
    assert "ValueError: perhaps" in ran[1].error
    assert "raise ValueError(why)" in ran[1].error, "with the traceback"
    with pytest.raises(qo.JobFailed, match="for good") as told:
        ran.check()
    assert told.value.job == ran[0].job


def test_check_returns_the_attempts_if_none_failed(app):
    @app.task("fine")
    async def fine() -> str:
        return "fine"

    fine.submit_sync()
    assert [one.result for one in app.drain_sync().check()] == ["fine"]


@both
def test_a_retry_is_due_when_its_backoff_has_passed(app, is_sync):
    @app.task("flaky", backoff=qo.Backoff(base=60, jitter=0))
    async def flaky(ctx: qo.Context) -> int:
        if ctx.attempt < 3:
            raise ValueError(ctx.attempt)
        return ctx.attempt

    job = flaky.submit_sync()
    assert [one.outcome for one in drained(app, is_sync=is_sync)] == ["retried"]
    assert drained(app, is_sync=is_sync) == []
    app.clock.move(seconds=59)
    assert drained(app, is_sync=is_sync) == []
    app.clock.move(seconds=1)
    assert [one.attempt for one in drained(app, is_sync=is_sync)] == [2]
    app.clock.move(minutes=2)
    assert [one.result for one in drained(app, is_sync=is_sync)] == [3]
    assert job.info().state == "succeeded"


def test_a_delay_and_a_snooze_wait_for_the_clock(app):
    @app.task("once")
    async def once(ctx: qo.Context) -> datetime:
        if app.clock.now() < NOON + timedelta(hours=2):
            raise qo.Snooze(timedelta(hours=1))
        return app.clock.now()

    once.options(delay=timedelta(hours=1)).submit_sync()
    assert app.drain_sync() == []
    app.clock.move(hours=1)
    assert [one.outcome for one in app.drain_sync()] == ["snoozed"]
    app.clock.move(hours=1)
    assert [one.result for one in app.drain_sync()] == [NOON + timedelta(hours=2)]


def test_a_schedule_fires_when_the_clock_passes_its_time(app):
    @app.schedule("0 3 * * *", timezone="Europe/Berlin")
    @app.task("nightly")
    def nightly() -> str:
        return app.clock.now().isoformat()

    assert app.drain_sync() == []
    app.clock.move_to(NOON + timedelta(hours=13, minutes=59))
    assert app.drain_sync() == []
    app.clock.move(minutes=1)
    assert [one.result for one in app.drain_sync()] == ["2030-01-02T02:00:00+00:00"]
    app.clock.move(days=5)
    assert len(app.drain_sync()) == 1, "of missed ticks the latest runs"


def test_a_job_expires_when_the_clock_passes_good_until(app):
    @app.task("late")
    def late() -> None: ...

    job = late.options(good_until=NOON + timedelta(hours=1)).submit_sync()
    app.clock.move(hours=1)
    assert app.drain_sync() == []
    with pytest.raises(qo.JobExpired):
        job.result(timeout=1)


def test_a_handler_may_move_the_clock(app):
    @app.task("slow")
    async def slow() -> str:
        app.clock.move(hours=5)
        return "done"

    slow.submit_sync()
    assert [one.result for one in app.drain_sync()] == ["done"]
    assert app.clock.now() == NOON + timedelta(hours=5)


def test_the_clock_moves_forward_only_and_as_far_as_one_likes(app):
    assert app.clock.now() == NOON
    assert app.clock.move(days=400) == NOON + timedelta(days=400)
    assert app.clock.move(timedelta(milliseconds=1.4), seconds=1) == NOON + timedelta(days=400, milliseconds=1001)
    with pytest.raises(qo.Invalid, match="never goes back"):
        app.clock.move(seconds=-1)
    with pytest.raises(qo.Invalid, match="never goes back"):
        app.clock.move_to(NOON)
    with pytest.raises(qo.Invalid, match="time zone"):
        app.clock.move_to(datetime(2050, 1, 1))  # noqa: DTZ001
    with pytest.raises(qo.Invalid, match="time zone"):
        qo.testing.TestApp(now=datetime(2050, 1, 1))  # noqa: DTZ001


def test_limits_of_the_code_count_before_the_first_drain(app):
    @app.task("one", max_concurrent=1)
    async def one() -> None: ...

    rejecting = one.options(on_limit="reject")
    rejecting.submit_sync()
    with pytest.raises(qo.LimitReached):
        rejecting.submit_sync()


def test_limits_hold_while_a_test_drains(app):
    now, most, two = 0, 0, asyncio.Event()

    @app.task("narrow", max_concurrent=2)
    async def narrow() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 2:
            two.set()
        await two.wait()
        now -= 1

    for _ in range(10):
        narrow.submit_sync()
    assert len(asyncio.run(app.drain())) == 10
    assert most == 2


def test_drain_leaves_jobs_that_cannot_run(app):
    @app.task("held")
    def held() -> None: ...

    asyncio.run(app.client.concurrency.set("held", 0))
    held.submit_sync()
    app.client.sync.submit("a_task_of_another_app")
    assert app.drain_sync() == []
    asyncio.run(app.client.concurrency.unset("held"))
    assert [one.task for one in app.drain_sync()] == ["held"]


def test_handlers_may_wait_for_each_other_in_drain(app):
    @app.task("inner")
    async def inner() -> int:
        return 7

    @app.task("outer")
    async def outer() -> int:
        return await (await inner.submit()).result(timeout=20)

    outer.submit_sync()
    assert sorted(one.task for one in asyncio.run(app.drain()).check()) == ["inner", "outer"]


def test_a_def_handler_runs_in_the_thread_of_drain_sync(app):
    @app.task("where")
    def where() -> str:
        return threading.current_thread().name

    for _ in range(3):
        where.submit_sync()
    assert [one.result for one in app.drain_sync()] == [threading.current_thread().name] * 3


def test_drain_sync_runs_one_job_at_a_time_by_priority(app):
    @app.task("note")
    def note(number: int) -> int:
        return number

    for number in (3, 1, 2):
        note.options(priority=number).submit_sync(number)
    assert [one.result for one in app.drain_sync()] == [1, 2, 3]


def test_a_handler_that_hangs_ends_drain_with_its_name(app):
    @app.task("hanging")
    async def hanging() -> None:
        await asyncio.Event().wait()

    hanging.submit_sync()
    with pytest.raises(TimeoutError, match=r"hanging .* is running"):
        asyncio.run(app.drain(timeout=0.2))
    with pytest.raises(TimeoutError, match="hanging"):
        app.drain_sync(timeout=0.2)


def test_drain_sync_inside_an_event_loop_says_what_to_do(app):
    async def main():
        app.drain_sync()

    with pytest.raises(RuntimeError, match="event loop"):
        asyncio.run(main())


def test_middleware_and_lifespan_are_those_of_the_app():
    told = []

    @asynccontextmanager
    async def lifespan(_app):
        told.append("open")
        yield
        told.append("close")

    app = qo.testing.TestApp(lifespan=lifespan)

    @app.middleware
    def around(ctx: qo.Context):
        told.append(f"before {ctx.task}")
        yield
        told.append("after")

    @app.task("t")
    def nothing() -> None:
        told.append("run")

    nothing.submit_sync()
    app.drain_sync().check()
    assert told == ["open", "before t", "run", "after", "close"]


def test_a_lifespan_that_fails_is_raised_by_drain():
    @asynccontextmanager
    async def lifespan(_app):
        raise LookupError("no database")
        yield

    app = qo.testing.TestApp(lifespan=lifespan)

    @app.task("t")
    def nothing() -> None: ...

    nothing.submit_sync()
    for is_sync in (False, True):
        with pytest.raises(LookupError, match="no database"):
            drained(app, is_sync=is_sync)


def test_an_app_without_tasks_drains_nothing(app):
    assert app.drain_sync() == []
    assert asyncio.run(app.drain()) == []


def test_a_closed_test_app_says_so():
    with qo.testing.TestApp() as app:

        @app.task("t")
        def nothing() -> None: ...

    with pytest.raises(RuntimeError, match="closed"):
        nothing.submit_sync()


def test_apps_of_tests_do_not_see_each_other():
    one, two = qo.testing.TestApp(), qo.testing.TestApp()

    def nothing() -> None: ...

    two.task("t")(nothing)
    one.task("t")(nothing).submit_sync()
    assert (len(two.drain_sync()), len(one.drain_sync())) == (0, 1)


def test_an_app_of_a_test_is_not_the_default_of_the_process():
    code = "import qo, qo.testing as t; app, own = qo.App('memory:'), t.TestApp(); print(qo.get_default() is app)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.fixture
def shop(tmp_path):
    """An app of a program, whose own store must not be touched."""
    return qo.App(f"file:{tmp_path / 'not_touched'}", name="shop")


def test_a_replaced_app_has_its_jobs_in_memory(shop, tmp_path):
    @shop.task("ship", max_concurrent=1)
    def ship(order: int) -> str:
        return f"order {order}"

    before = shop.client
    with qo.testing.replaced(shop, now=NOON) as test:
        job = ship.submit_sync(7)
        asyncio.run(ship.options(delay=60).submit(8))
        assert shop.client is not before
        assert [one.result for one in test.drain_sync()] == ["order 7"]
        assert test.clock.move(minutes=1) == NOON + timedelta(minutes=1)
        assert [one.result for one in asyncio.run(test.drain())] == ["order 8"]
        assert job.result() == "order 7"
    assert shop.client is before
    assert not (tmp_path / "not_touched").exists()
    with pytest.raises(RuntimeError, match="closed"):
        job.info()


def test_an_app_is_put_back_when_the_test_fails(shop):
    before = shop.client
    with pytest.raises(LookupError), qo.testing.replaced(shop):
        raise LookupError
    assert shop.client is before


def test_an_app_that_has_not_connected_can_be_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".qo.toml").write_text("this is no TOML")
    app = qo.App()

    @app.task("t")
    def nothing() -> None: ...

    with qo.testing.replaced(app) as test:
        nothing.submit_sync()
        assert len(test.drain_sync()) == 1


def test_an_app_without_asyncio_can_be_replaced():
    app = qo.sync.App("file:.not_touched")

    @app.task("double")
    def double(number: int) -> int:
        return 2 * number

    with qo.testing.replaced(app) as test:
        job = double.submit(4)
        assert [one.result for one in test.drain_sync()] == [8]
        assert job.result() == 8


def test_jobs_of_a_transaction_are_submitted_at_once(app):
    @app.task("t")
    def nothing() -> None: ...

    class Connection:
        def close(self) -> None: ...

    class AsyncConnection:
        async def close(self) -> None: ...

    nothing.submit_in(Connection())
    nothing.options(delay=60).submit_in(Connection())
    asyncio.run(nothing.submit_in(AsyncConnection()))
    assert len(app.drain_sync()) == 2
    app.clock.move(seconds=60)
    assert len(app.drain_sync()) == 1


def test_class_jobs_of_a_replaced_app_run_too():
    app = qo.App("file:.not_touched")

    class Ship(qo.Job, app=app):
        def __init__(self, order: int) -> None:
            self.order = order

        def run(self) -> str:
            return f"order {self.order}"

    with qo.testing.replaced(app) as test:
        Ship(7).run_in_worker()
        assert [one.result for one in test.drain_sync().check()] == ["order 7"]


def run_pytest(folder, *arguments):
    """The tests of a folder, with the plugin: in a process of its own."""
    # Sources that are used in place have no entry points.
    is_installed = any(entry.value == "qo._pytest" for entry in entry_points(group="pytest11"))
    plugin = [] if is_installed else ["-p", "qo._pytest"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


TESTS = """
    import asyncio
    import pytest
    import qo, qo.testing

    shop = qo.App("file:.not_touched")

    @shop.task("ship")
    def ship(order: int) -> str:
        return f"order {order}"

    replaced = qo.testing.fixture(shop)
    by_name = qo.testing.fixture("test_shop:shop", name="shop_by_name")

    def test_app_of_its_own(qo_app):
        @qo_app.task("double")
        async def double(number: int) -> int:
            return 2 * number

        double.submit_sync(4)
        assert [ran.result for ran in qo_app.drain_sync()] == [8]

    def test_replaced(replaced):
        ship.submit_sync(7)
        assert replaced.drain_sync().check()[0].result == "order 7"

    def test_by_name(shop_by_name):
        ship.submit_sync(7)
        assert shop_by_name.drain_sync().check()[0].result == "order 7"
"""
ASYNC_TESTS = """
    @pytest.mark.asyncio
    async def test_with_a_loop(qo_app):
        @qo_app.task("double")
        async def double(number: int) -> int:
            return 2 * number

        job = await double.submit(4)
        assert [ran.result for ran in await qo_app.drain()] == [8]
        assert await job.result() == 8

    @pytest.mark.asyncio
    async def test_replaced_with_a_loop(replaced):
        await ship.submit(7)
        assert (await replaced.drain()).check()[0].result == "order 7"
"""


def test_the_fixture_works_without_pytest_asyncio(tmp_path):
    (tmp_path / "test_shop.py").write_text(dedent(TESTS))
    done = run_pytest(tmp_path, "-p", "no:asyncio", "-W", "error")
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_fixture_works_with_pytest_asyncio(tmp_path):
    pytest.importorskip("pytest_asyncio")
    (tmp_path / "test_shop.py").write_text(dedent(TESTS) + dedent(ASYNC_TESTS))
    done = run_pytest(tmp_path, "-o", "asyncio_default_fixture_loop_scope=function", "-W", "error")
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_importing_qo_does_not_import_the_part_for_tests():
    code = "import sys, qo; print([name for name in sys.modules if name in ('qo.testing', 'qo._trial', 'pytest')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
