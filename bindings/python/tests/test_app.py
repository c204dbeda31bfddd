"""An app: its tasks, its jobs, its results."""

import asyncio
import dataclasses
import enum
import functools
import sys
import types
import uuid
from contextlib import asynccontextmanager, contextmanager
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
        return {"address": address, "tries": tries, "attempt": ctx.attempt, "key": ctx.key, "task": ctx.task}

    async def main():
        async with running(app):
            job = await call_api.options(key="customer-7").submit("https://example.org", tries=2)
            return await job.result(timeout=30)

    expected = {"address": "https://example.org", "tries": 2, "attempt": 1, "key": "customer-7"}
    assert asyncio.run(main()) == {**expected, "task": call_api.name}


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


def test_a_limit_per_key_holds_for_every_key():
    app = qo.App("memory:", name="shop")
    now: dict[str, int] = {}
    most: dict[str, int] = {}

    @app.task("work", max_concurrent_per_key=2)
    async def work(ctx: qo.Context) -> None:
        now[ctx.key] = now.get(ctx.key, 0) + 1
        most[ctx.key] = max(most.get(ctx.key, 0), now[ctx.key])
        await asyncio.sleep(0.02)
        now[ctx.key] -= 1

    async def main():
        handles = [await work.options(key=key).submit() for key in "ab" * 6]
        async with running(app):
            for handle in handles:
                await handle.result(timeout=30)
            return await app.client.concurrency.status("work/*")

    status = asyncio.run(main())
    assert most == {"a": 2, "b": 2}
    assert (status.limit, status.source) == (2, "config")


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

    @app.task(max_attempts=2, backoff=qo.Backoff(base=0.01), fail_on=KeyError)
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
                    ended[how] = failed
            return ended

    ended = asyncio.run(main())
    assert (ended["snooze"], ended["retry"]) == (3, 2)
    assert [seen.count(how) for how in ("fail", "key", "exit", "always")] == [1, 1, 2, 2]
    assert ended["fail"].error == "no"
    assert ended["key"].error == "KeyError: 'gone'"
    assert ended["exit"].error == "SystemExit: 3"
    always = ended["always"]
    assert (always.error, str(always)) == (
        "ValueError: always wrong",
        f"job {always.job} ({act.name}) failed: {always.error}",
    )
    assert always.traceback.startswith("Traceback (most recent call last):\n")
    assert "in act\n" in always.traceback
    assert "/qo/" not in always.traceback, "frames of qo say nothing about the handler"
    assert always.traceback in str(always.__cause__)


def test_only_the_listed_exceptions_are_tried_again():
    app = qo.App("memory:")
    seen: list[str] = []

    @app.task(max_attempts=5, backoff=0.01, retry_on=(OSError, TimeoutError))
    async def act(how: str) -> int:
        seen.append(how)
        if how == "os" and seen.count("os") < 3:
            raise ConnectionError("busy")
        if how == "value":
            raise ValueError("wrong")
        return seen.count(how)

    async def main():
        async with running(app, poll_interval=0.05):
            assert await (await act.submit("os")).result(timeout=30) == 3
            with pytest.raises(qo.JobFailed, match="ValueError: wrong"):
                await (await act.submit("value")).result(timeout=30)

    asyncio.run(main())
    assert seen.count("value") == 1


def test_a_payload_that_does_not_fit_fails_the_job_and_says_why():
    app = qo.App("memory:")

    @app.task("work")
    async def work(number: int, text: str = "") -> None:
        pass

    async def main():
        async with running(app):
            for payload, why in [
                ({"number": "one"}, "number: 'one': must be int"),
                ({"text": "a"}, "number is missing"),
                ({"number": 1, "colour": 2}, "there is no colour"),
                ([1], "must be an object"),
                (None, "number is missing"),
            ]:
                job = await app.client.submit("work", payload)
                with pytest.raises(qo.JobFailed, match=why) as caught:
                    await job.result(timeout=30)
                assert caught.value.traceback is None
                assert (await job.info()).attempts_used == 1, "another try would end the same way"

    asyncio.run(main())


def test_a_result_that_is_no_json_fails_the_job():
    app = qo.App("memory:")

    @app.task("work")
    async def work():
        return {1: object()}

    @app.task("forgotten")
    def forgotten():
        return asyncio.sleep(1)

    async def main():
        async with running(app):
            for task, why in ((work, "object is not JSON"), (forgotten, "a coroutine is not JSON: await it")):
                job = await task.submit()
                with pytest.raises(qo.JobFailed, match=rf"result of {task.name}: .*must be JSON: {why}"):
                    await job.result(timeout=30)
                assert (await job.info()).attempts_used == 1

    asyncio.run(main())


def test_a_parameter_with_a_default_may_be_added_while_jobs_wait():
    app = qo.App("memory:")

    @app.task("work")
    async def work(number: int, factor: int = 10) -> int:
        return number * factor

    async def main():
        job = await app.client.submit("work", {"number": 4})
        async with running(app):
            return await job.result(timeout=30)

    assert asyncio.run(main()) == 40


def test_what_is_refused_is_refused_by_name():
    app = qo.App("memory:")

    @app.task("work", max_concurrent=1)
    async def work(number: int) -> None:
        pass

    async def main():
        with pytest.raises(TypeError, match="missing a required argument: 'number'"):
            await work.submit()  # type: ignore[call-arg]
        with pytest.raises(qo.Invalid, match="must be JSON") as caught:
            await work.submit(object())  # type: ignore[arg-type]
        assert caught.value.path == "work(number)"
        for options, path, rule in [
            ({"cost": 0}, "cost", "must be a whole number from 1 to 1000000"),
            ({"cost": "2"}, "cost", "must be a whole number from 1 to 1000000"),
            ({"priority": True}, "priority", "must be a whole number"),
            ({"queue": "no name"}, "queue", "must match"),
            ({"run_at": datetime(2026, 1, 1)}, "run_at", "must be a datetime with a time zone"),  # noqa: DTZ001
            ({"delay": -1}, "delay", "must be seconds, or a timedelta, and not negative"),
            ({"timeout": "3s"}, "timeout", "must be seconds"),
            ({"on_limit": "drop"}, "on_limit", "must be one of 'wait', 'reject', 'skip'"),
            ({"limits": {"gpu": 0}}, "limits[gpu]", "must be a whole number from 1"),
            ({"id": "7"}, "id", "must be a UUID"),
            ({"key": "a" * 257}, "key", "must be 1 to 256 bytes"),
            ({"key": "*"}, "key", "stands for every key and cannot be one"),
            ({"idempotency_key": "a\n"}, "idempotency_key", "must not contain control characters"),
            ({"traceparent": "00-0-0-0"}, "traceparent", "must be 00-TRACE-SPAN-FLAGS"),
            ({"limits": {"gpu/": 1}}, "limits", "must be 1 to 256 bytes"),
            ({"backoff": "slow"}, "backoff", "must be a qo.Backoff"),
            ({"backoff": qo.Backoff(factor=0.5)}, "backoff.factor", "must be a number from 1 to 100"),
        ]:
            with pytest.raises(qo.Invalid) as caught:
                work.options(**options)
            assert (caught.value.path, caught.value.rule[: len(rule)]) == (path, rule)
        with pytest.raises(qo.UnknownOption, match=r"prioritty.*did you mean priority") as unknown:
            work.options(prioritty=3)  # type: ignore[call-overload]
        assert isinstance(unknown.value, TypeError), "as of any function with an unknown argument"
        with pytest.raises(qo.Invalid) as caught:
            await work.options(max_attempts=2, run_at=datetime(1960, 1, 1, tzinfo=timezone.utc)).submit(1)
        assert caught.value.path == "run_at", "of the only job, without its index"
        assert str(caught.value).startswith("run_at: ")
        with pytest.raises(qo.Invalid) as caught:
            await work.options(good_until=datetime(1960, 1, 1, tzinfo=timezone.utc)).submit_many([(1,), (2,)])
        assert caught.value.path == "jobs[0].good_until"
        with pytest.raises(qo.NotFound):
            await app.client.job(str(uuid.uuid4())).info()
        with pytest.raises(qo.Invalid, match="must be one of 'exit', 'tell'"):
            await app.run(on_stuck="wait")  # type: ignore[arg-type]
        with pytest.raises(qo.UnknownOption, match="no such option of a worker"):
            await app.run(processes_=3)  # type: ignore[call-arg]
        await app.close()
        with pytest.raises(RuntimeError, match="the app is closed"):
            await work.submit(1)
        async with app:
            assert (await (await work.submit(1)).info()).state == "pending"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"max_concurrent": -1}, "max_concurrent"),
        ({"max_concurrent_per_key": 1.5}, "max_concurrent_per_key"),
        ({"timeout": "soon"}, "timeout"),
        ({"group": "a b"}, "group"),
        ({"queue": ""}, "queue"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"retry_on": ("OSError",)}, "retry_on"),
        ({"fail_on": 3}, "fail_on"),
        ({"backoff": qo.Backoff(base=10, longest=1)}, "backoff.longest"),
        ({"max_concurent": 3}, "options"),
    ],
)
def test_a_mistake_in_a_declaration_is_raised_where_it_stands(options, path):
    with pytest.raises(qo.Invalid) as caught:
        qo.App("memory:").task("work", **options)
    assert caught.value.path == path


def test_declarations_that_make_no_task_are_refused():
    app = qo.App("memory:")

    @app.task("work")
    def work(number: int = 1) -> None: ...

    def generator():
        yield

    async def async_generator():
        yield

    for function, why in [
        (work.__wrapped__, "is declared twice: as test_app.*work and as"),
        (lambda *numbers: numbers, "no .args, ..kwargs or /"),
        (lambda **named: named, "no .args, ..kwargs or /"),
        (lambda number, ctx: number, "the context must be the first parameter"),
        (generator, "one with yield does nothing by itself"),
        (async_generator, "one with yield does nothing by itself"),
    ]:
        with pytest.raises(qo.Invalid, match=why):
            app.task("work" if function is work.__wrapped__ else "other")(function)
    with pytest.raises(qo.Invalid, match=r'give it one, as in @app.task."resize".'):
        app.task(lambda: None)
    with pytest.raises(qo.Invalid, match="is a task already"):
        app.task("again")(work)
    with pytest.raises(qo.Invalid, match="must match"):
        app.task("a b")
    with pytest.raises(qo.Invalid, match="must be a function with one yield"):
        app.middleware(lambda ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(qo.Invalid, match="give it one"):
        app.task(functools.partial(sum, [1]))
    assert app.task(name="named")(functools.partial(sum, [1])).name == "named"


def test_a_task_is_named_after_module_and_function():
    app = qo.App("memory:")

    @app.task
    def nested() -> None: ...

    assert nested.name == "test_app.test_a_task_is_named_after_module_and_function.nested"
    assert (nested.__name__, repr(nested)) == ("nested", f"<task {nested.name}>")
    assert qo.__version__

    def marked() -> None: ...

    marked.name = "an attribute of the function"
    assert app.task("own")(marked).name == "own"


def test_a_group_that_is_full_refuses_or_skips(url):
    app = qo.App(url)

    @app.task("work")
    async def work(number: int) -> None:
        pass

    async def main():
        await app.client.concurrency.set("work", 1)
        assert await work.options(on_limit="skip").submit(1) is not None
        with pytest.raises(qo.LimitReached):
            await work.options(on_limit="reject").submit(2)
        assert await work.options(on_limit="skip").submit(2) is None
        assert await work.options(on_limit="skip").submit_many([{"number": 2}, (3,)]) == [None, None]
        assert await app.client.submit("work", {"number": 2}, on_limit="skip") is None
        jobs = [work.job(5), work.options(on_limit="reject").job(6), work.options(on_limit="skip").job(7)]
        with pytest.raises(qo.LimitReached) as caught:
            await app.submit_many(jobs)
        first, second, third = caught.value.outcomes
        assert (first.id, type(second), third) == (jobs[0].id, qo.LimitReached, None)

    asyncio.run(main())


def test_many_jobs_go_in_one_call():
    app = qo.App("memory:")

    @app.task
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task
    def shout(text: str) -> str:
        return text.upper()

    async def main():
        async with running(app):
            same = await add.submit_many([{"a": 1}, (2, 2), add.job(3, b=3), add.options(priority=-1).job(4)])
            mixed = await app.submit_many([add.job(1), shout.job("a")])
            jobs = await add.submit_many({"a": number} for number in range(10_001))
            assert len({job.id for job in jobs}) == 10_001
            with pytest.raises(qo.Invalid, match=r"calls\[1\]"):
                await add.submit_many([{"a": 1}, 3])  # type: ignore[list-item]
            return [await job.result(timeout=30) for job in [*same, *mixed, jobs[-1]]]

    assert asyncio.run(main()) == [2, 4, 6, 5, 2, "A", 10_001]


def test_a_job_submitted_twice_with_its_id_is_one_job():
    app = qo.App("memory:")

    @app.task
    async def work() -> None: ...

    async def main():
        job = work.job()
        first, again = await app.submit_many([job, job])
        assert first == again
        chosen = str(uuid.uuid4())
        assert (await work.options(id=chosen).submit()).id == chosen
        keyed = work.options(idempotency_key="once")
        assert await keyed.submit() == await keyed.submit()

    asyncio.run(main())


def test_a_delay_counts_by_the_clock_of_the_store(url):
    app = qo.App(url)

    @app.task
    async def work() -> None: ...

    async def main():
        job = await work.options(delay=timedelta(hours=1)).submit()
        [many] = await work.options(delay=3600).submit_many([{}])
        infos = [await job.info(), await many.info()]
        for info in infos:
            assert timedelta(minutes=59) < info.run_at - info.submitted_at < timedelta(minutes=61)
        assert (await job.explain()).reasons[0].kind == "scheduled_until"

    asyncio.run(main())


def test_a_router_gives_its_tasks_to_the_app_that_includes_it():
    mail = qo.Tasks(queue="mail", max_attempts=7, timeout=5)

    @mail.task("send", priority=3)
    async def send(to: str) -> str:
        return f"sent to {to}"

    with pytest.raises(LookupError, match="in no app"):
        asyncio.run(send.submit("ann"))
    app = qo.App("memory:")
    app.include([mail])

    async def main():
        async with running(app):
            job = await send.submit("ann")
            info = await job.info()
            assert (info.queue, info.max_attempts, info.priority) == ("mail", 7, 3)
            return await job.result(timeout=30)

    assert asyncio.run(main()) == "sent to ann"
    mail.schedule("@daily")(mail.task("later")(lambda: None))
    assert (list(app.tasks), list(app.schedules)) == (["send", "later"], ["later"]), "also what is declared later"
    with pytest.raises(qo.Invalid, match="must be a list"):
        app.include(mail)  # type: ignore[arg-type]
    with pytest.raises(qo.Invalid, match=r"must be a qo.Tasks, a module"):
        app.include([3])  # type: ignore[list-item]
    other = qo.Tasks()
    other.task("send")(lambda: None)
    with pytest.raises(qo.Invalid, match="is declared twice"):
        app.include([other])
    with pytest.raises(qo.UnknownOption, match="option that tasks share"):
        qo.Tasks(max_concurrent=3)  # type: ignore[call-arg]


def test_the_group_of_a_task_is_known_before_a_worker_is():
    app = qo.App("memory:")

    @app.task("one", group="tenant", max_concurrent=1)
    async def one() -> None: ...

    async def main():
        assert (await (await one.submit()).info()).group == "tenant"
        assert (await (await one.options(group="other").submit()).info()).group == "other"

    asyncio.run(main())


def test_a_store_of_the_environment_does_not_beat_the_code(here, monkeypatch, caplog):
    monkeypatch.setenv("QO_STORE", f"{here}-other")
    app = qo.App(here)

    @app.task("work")
    async def work() -> None: ...

    async def main():
        async with running(app):
            await (await work.submit()).result(timeout=30)

    asyncio.run(main())
    assert "QO_STORE is not used: the code names the store" in caplog.text
    assert qo.App().client.url == f"{here}-other"


def test_a_router_in_two_apps_runs_with_the_middleware_of_each():
    tasks = qo.Tasks()
    seen = []

    @tasks.task("work")
    async def work() -> None: ...

    async def run(name: str) -> None:
        app = qo.App("memory:", name=name)

        @app.middleware
        def around(ctx: qo.Context):
            seen.append(name)
            yield

        app.include([tasks])
        apps.append(app)
        async with running(app):
            await (await work.submit()).result(timeout=30)

    async def again(app: qo.App) -> None:
        job = await app.client.submit("work")
        async with running(app):
            await job.result(timeout=30)

    apps: list[qo.App] = []
    asyncio.run(run("one"))
    asyncio.run(run("two"))
    asyncio.run(again(apps[0]))
    assert seen == ["one", "two", "one"]


def test_a_module_that_is_named_is_imported_when_it_is_needed(tmp_path, monkeypatch):
    (tmp_path / "late_mail.py").write_text(
        "import qo\ntasks = qo.Tasks()\n@tasks.task\nasync def send(to: str) -> str:\n    return to\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app = qo.App("memory:")
    app.include(["late_mail"])
    assert "late_mail" not in sys.modules

    async def main():
        async with running(app):
            await until(lambda: asyncio.sleep(0, "late_mail" in sys.modules), "import")
            return await (await sys.modules["late_mail"].send.submit("ann")).result(timeout=30)

    assert asyncio.run(main()) == "ann"
    sys.modules.pop("late_mail")
    again = qo.App("memory:")
    again.include(["late_mail"])
    import late_mail

    assert asyncio.run(late_mail.send.submit("bob")).id, "a submit looks into the modules that apps name"
    module = types.ModuleType("given")
    module.tasks = late_mail.tasks
    third = qo.App("memory:")
    third.include([module])
    assert list(third.tasks) == ["late_mail.send"]


def test_a_schedule_is_pushed_by_the_worker_and_runs():
    app = qo.App("memory:", name="shop")
    ran = []

    @app.schedule("* * * * * *", missed="skip", arguments={"region": "eu"}, name="often")
    @app.schedule("0 3 * * *", timezone="Europe/Berlin", arguments={"region": "us"}, overlap=True)
    @app.task("report", queue="slow", priority=4)
    async def report(region: str) -> None:
        ran.append(region)

    @app.schedule("@hourly")
    async def hourly(ctx: qo.Context) -> None:
        ran.append(ctx.task)

    async def main():
        async with running(app):
            await until(lambda: asyncio.sleep(0, "eu" in ran), "a tick")
            found = {schedule.schedule: schedule for schedule in await app.client.schedules()}
            assert set(found) == {"often", "report", hourly.name}
            spec = found["report"].raw["spec"]
            assert spec == {
                "cron": "0 3 * * *",
                "timezone": "Europe/Berlin",
                "task": "report",
                "payload": '{"region":"us"}',
                "queue": "slow",
                "priority": 4,
                "max_attempts": 3,
                "timeout_ms": None,
                "missed": "latest",
                "overlap": True,
            }
            await app.client.disable_schedule("often")
            assert not next(one for one in await app.client.schedules() if one.schedule == "often").enabled
            job = await app.client.trigger_schedule(hourly.name)
            await job.result(timeout=30)

    asyncio.run(main())
    assert hourly.name in ran


def test_a_schedule_that_an_app_no_longer_declares_is_taken_back():
    first = qo.App("memory:", name="shop")
    first.schedule("@daily", name="old")(first.task("work")(lambda: None))
    again = qo.App("memory:", name="shop")
    again.task("work")(lambda: None)
    again.client = first.client

    async def main():
        async with running(first):
            await until(lambda: schedules(first, ["old"]), "pushed")
        async with running(again):
            await until(lambda: schedules(first, []), "taken back")

    async def schedules(app, names):
        return [schedule.schedule for schedule in await app.client.schedules()] == names

    asyncio.run(main())


@pytest.mark.parametrize(
    ("cron", "options", "why"),
    [
        ("every day", {}, "cron: .*must have five fields"),
        ("@fortnightly", {}, "cron: .*or be one of @hourly"),
        ("@daily", {"missed": "never"}, "missed: .*must be one of 'latest', 'all', 'skip'"),
        ("@daily", {"arguments": {"a": "x"}}, r"work\(a\): .*must be int"),
        ("@daily", {"arguments": {"b": 1}}, "arguments: .*unexpected keyword argument 'b'"),
        ("@daily", {"time_zone": "UTC"}, "did you mean timezone"),
        ("@daily", {"name": "a b"}, "schedule: .*must match"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(cron, options, why):
    app = qo.App("memory:")
    with pytest.raises(qo.Invalid, match=why):

        @app.schedule(cron, **options)
        @app.task("work")
        def work(a: int = 1) -> None: ...


def test_a_worker_refuses_a_schedule_that_the_store_refuses():
    app = qo.App("memory:")

    @app.schedule("99 3 * * *")
    def work() -> None: ...

    with pytest.raises(qo.Invalid, match="cron"):
        asyncio.run(app.run(until_signal=False))
    with pytest.raises(qo.Invalid, match="is declared twice: give one of them a name"):
        app.schedule("@daily")(work)


def test_steps_of_a_workflow_run_one_after_another(url):
    app = qo.App(url)
    ran = []

    @app.task("step")
    async def step(number: int, *, fails: bool = False) -> int:
        ran.append(number)
        if fails and ran.count(number) < 2:
            raise qo.Fail("once")
        return number

    async def main():
        order = app.workflow("order-7", on_failure="halt")
        first = await order.submit(step, 1)
        rest = await order.submit_many([step.job(2, fails=True), step.job(3), step.job(4)])
        async with running(app):
            assert await first.result(timeout=30) == 1
            await until(lambda: is_halted(order), "halted by the second step")
            status = await order.status()
            assert (status.steps, status.head.step, status.head.state) == (4, 2, "failed")
            reason = (await rest[1].explain()).reasons[0]
            assert reason.kind == "workflow_halted"
            with pytest.raises(qo.Conflict):
                await order.skip_step(1)
            await order.retry_step()
            assert await rest[2].result(timeout=30) == 4
        assert [job.step for job in await order.steps()] == [1, 2, 3, 4]
        assert (await order.status()).state == "finished"
        assert [found.workflow for found in await app.client.workflows()] == ["order-7"]
        await order.cancel()
        with pytest.raises(qo.Conflict):
            await order.submit(step, 5)

    async def is_halted(order):
        return (await order.status()).state == "halted"

    asyncio.run(main())
    assert ran == [1, 2, 2, 3, 4]


def test_middleware_runs_around_every_attempt():
    app = qo.App("memory:")
    seen: list[str] = []

    @app.middleware
    def outer(ctx: qo.Context):
        seen.append(f"outer {ctx.task}")
        try:
            yield
        except ValueError as error:
            seen.append(f"outer saw {error}")
            raise
        finally:
            seen.append("outer ended")

    @app.middleware
    async def inner(ctx: qo.Context):
        seen.append(f"inner {ctx.task}")
        await asyncio.sleep(0)
        yield
        seen.append("inner ended")

    @app.middleware
    def forgiving(ctx: qo.Context):
        try:
            yield
        except LookupError:
            seen.append("forgiven")

    @app.task("async")
    async def one(wrong: bool = False) -> str:  # noqa: FBT001, FBT002
        if wrong:
            raise ValueError("wrong")
        return "good"

    @app.task("sync")
    def two() -> str | None:
        raise KeyError("gone")

    async def main():
        async with running(app):
            results = [await (await one.submit()).result(timeout=30), await (await two.submit()).result(timeout=30)]
            with pytest.raises(qo.JobFailed, match="ValueError: wrong"):
                await (await one.options(max_attempts=1).submit(wrong=True)).result(timeout=30)
            return results

    assert asyncio.run(main()) == ["good", None]
    assert seen[:4] == ["outer async", "inner async", "inner ended", "outer ended"]
    assert seen[4:7] == ["outer sync", "forgiven", "outer ended"]
    assert seen[7:] == ["outer async", "inner async", "outer saw wrong", "outer ended"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_lifespan_is_entered_once_per_worker(is_async):
    seen = []

    @asynccontextmanager
    async def lifespan_async(app):
        app.state.pool = "pool"
        seen.append("in")
        yield
        seen.append("out")

    @contextmanager
    def lifespan(app):
        app.state.pool = "pool"
        seen.append("in")
        yield
        seen.append("out")

    app = qo.App("memory:", lifespan=lifespan_async if is_async else lifespan)

    @app.task
    async def work() -> str:
        seen.append("work")
        return app.state.pool

    async def main():
        async with running(app):
            return [await (await work.submit()).result(timeout=30) for _ in range(2)]

    assert asyncio.run(main()) == ["pool", "pool"]
    assert seen == ["in", "work", "work", "out"]
    wrong = qo.App("memory:", lifespan=lambda app: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(qo.Invalid, match="must return a context manager"):
        asyncio.run(wrong.run(until_signal=False))


def test_the_only_app_is_the_default_unless_another_is_set(monkeypatch):
    import weakref

    monkeypatch.setattr("qo._app._APPS", weakref.WeakSet())
    monkeypatch.setattr("qo._app._DEFAULT", [])
    with pytest.raises(LookupError, match="there is no app"):
        qo.get_default()
    only = qo.App("memory:")
    assert qo.get_default() is only
    other = qo.App("memory:")
    with pytest.raises(LookupError, match=r"there are 2 apps.*qo.set_default"):
        qo.get_default()
    qo.set_default(other)
    assert qo.get_default() is other
    with pytest.raises(qo.Invalid, match=r"must be a qo.App"):
        qo.set_default("memory:")  # type: ignore[arg-type]


def test_an_app_without_a_url_reads_the_file_when_it_is_used(tmp_path, monkeypatch):
    app = qo.App()

    @app.task("work", max_concurrent_per_key=5, timeout=9)
    async def work(number: int) -> int:
        return number

    (tmp_path / ".qo.toml").write_text(
        f"""
        store = "file:{tmp_path / "store"}"
        app = "shop"
        [concurrency.limits]
        work = 3
        [queues.mail]
        priority = 7
        [worker]
        name = "from-file"
        [tasks.work]
        timeout_secs = 2
        [tasks.shout]
        command = ["tr", "a-z", "A-Z"]
        [schedules.nightly]
        cron = "0 3 * * *"
        task = "work"
        """
    )
    monkeypatch.chdir(tmp_path)
    assert app.name == "shop"

    async def main():
        async with running(app, max_concurrent_tasks=2):
            assert await (await work.submit(1)).result(timeout=30) == 1
            shouted = await app.client.submit("shout", "quiet")
            assert await shouted.result(timeout=30) == "QUIET", "programs of the file run, too"
            status = await app.client.concurrency.status("work")
            assert (status.limit, status.source) == (3, "config")
            assert (await app.client.concurrency.status("work/*")).limit == 5
            [worker] = await app.client.workers()
            assert (worker.worker, worker.permits) == ("from-file", 2)
            assert [schedule.schedule for schedule in await app.client.schedules()] == ["nightly"]
            assert [queue.priority for queue in await app.client.queues() if queue.queue == "mail"] == [7]

    asyncio.run(main())
    assert app.client.url == f"file:{tmp_path / 'store'}"
    for other, why in [
        (qo.App(f"file:{tmp_path / 'other'}"), "names another store"),
        (qo.App(name="billing"), r'name: .billing.: \.qo\.toml:3 sets app = "shop"'),
    ]:
        with pytest.raises(qo.Invalid, match=why):
            asyncio.run(other.run(until_signal=False))
    other = qo.App()
    other.schedule("@daily", name="nightly")(other.task("work")(lambda: None))
    with pytest.raises(qo.Invalid, match=r"schedules\.nightly of the file|\[schedules.nightly\] of the file"):
        asyncio.run(other.run(until_signal=False))
    (tmp_path / ".qo.toml").write_text("worker = 3")
    with pytest.raises(qo.Invalid, match="worker"):
        asyncio.run(qo.App().client.queues())
    with pytest.raises(qo.Invalid, match="must be the URL of a store"):
        qo.App(3)  # type: ignore[arg-type]
