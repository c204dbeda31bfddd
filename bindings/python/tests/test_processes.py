"""Workers that are processes: killed, stopped, told to stop; their children; forks."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections import Counter
from contextlib import suppress

import pytest
from conftest import namespace, url_of
from fleet import Fleet, children_of, most_at_once, state_of, until

LEASE = "--default-lease-duration-secs=5"

SUBMIT = """
import asyncio, json, shop, qo
async def main():
    jobs = await shop.{task}.submit_many([{{"number": n}} for n in range({count})])
    print(sorted([await job.result(timeout=100) for job in jobs]) == list(range({count})))
asyncio.run(main())
"""


@pytest.fixture(params=["file", "postgres", "s3", "http"])
def fleet(request, tmp_path):
    with namespace(request.param, tmp_path) as url:
        fleet = Fleet(tmp_path, url)
        yield fleet
        fleet.kill()


@pytest.fixture
def here(tmp_path):
    fleet = Fleet(tmp_path, url_of("file", tmp_path))
    yield fleet
    fleet.kill()


def submitting(fleet: Fleet, task: str, count: int) -> subprocess.Popen:
    script = SUBMIT.format(task=task, count=count)
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=fleet.folder, env=fleet.environment, stdout=subprocess.PIPE, text=True
    )


def test_a_limit_holds_across_workers_one_of_which_is_killed(fleet):
    workers = [fleet.start(LEASE) for _ in range(4)]
    submitted = submitting(fleet, "work", 60)
    until(lambda: len(fleet.records()) >= 12, "some jobs have run")
    victim = next(worker for worker in workers if worker.pid == fleet.records()[-1]["pid"])
    victim.kill()
    victim.wait()
    died = {victim.pid: time.monotonic()}
    assert submitted.communicate(timeout=150)[0] == "True\n"
    fleet.end()
    records = fleet.records()
    assert {record["number"] for record in records if record["what"] == "ended"} == set(range(60))
    assert most_at_once(records, died) == 3


def test_a_limit_holds_across_children_one_of_which_is_killed(fleet):
    worker = fleet.start("--processes=4", LEASE)
    submitted = submitting(fleet, "sync_work", 60)
    until(lambda: len(fleet.records()) >= 12, "some jobs have run")
    victim = fleet.records()[-1]["pid"]
    assert victim in children_of(worker.pid)
    # From here on it runs nothing, and its slot is taken: another job cannot begin between its end and this moment.
    os.kill(victim, signal.SIGSTOP)
    until(lambda: state_of(victim) == "T", "it is stopped")
    died = {victim: time.monotonic()}
    os.kill(victim, signal.SIGKILL)
    assert submitted.communicate(timeout=150)[0] == "True\n"
    fleet.end()
    records = fleet.records()
    assert {record["number"] for record in records if record["what"] == "ended"} == set(range(60))
    assert most_at_once(records, died) == 3


def test_the_parent_shows_the_metrics_of_all_its_children(here):
    worker = here.start("--processes=3", "--metrics-addr=127.0.0.1:0")
    address = re.search(r"metrics are at (http://\S+)", here.log(worker))[1]

    def shown() -> dict[str, float]:
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - its own worker
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    submitted = submitting(here, "sync_work", 12)
    assert submitted.communicate(timeout=150)[0] == "True\n"
    until(lambda: shown()["worker_tasks_completed_total"] == 12, "all are counted")
    counts = shown()
    assert counts["worker_permits"] == 3
    assert counts["worker_in_flight_tasks"] == 0
    assert counts["worker_claim_size_sum"] == counts["worker_task_duration_seconds_count"] == 12


STOPPED = [("ticks", []), ("sync_ticks", []), ("ticks", ["--processes=1"]), ("sync_ticks", ["--processes=1"])]

OUTCOMES = """
import asyncio, json, shop
async def main():
    print(json.dumps([[run.outcome for run in (await shop.app.client.job(id).info()).attempts] for id in {ids}]))
asyncio.run(main())
"""


def test_a_worker_stopped_past_its_lease_does_nothing_more(fleet):
    # Every kind of handler at once, each in a worker and a queue of its own.
    workers = [fleet.start(LEASE, f"--queues=q{number}", *arguments) for number, (_, arguments) in enumerate(STOPPED)]
    submits = [
        f"shop.{task}.options(queue='q{number}').submit_sync({number})" for number, (task, _) in enumerate(STOPPED)
    ]
    ids = json.loads(fleet.run(f"import json, shop; print(json.dumps([job.id for job in [{', '.join(submits)}]]))"))
    numbers = set(range(len(STOPPED)))
    until(lambda: {record["number"] for record in fleet.records()} == numbers, "the handlers run")
    trees = [[worker.pid, *children_of(worker.pid)] for worker in workers]
    for tree in trees:
        for process in tree:
            os.kill(process, signal.SIGSTOP)
    first = {record["pid"] for record in fleet.records()}
    # Another worker takes the jobs over when the leases are over.
    fleet.start(LEASE)
    until(
        lambda: {record["number"] for record in fleet.records() if record["pid"] not in first} == numbers,
        "the jobs run again",
    )
    resumed = []
    for tree in trees:
        resumed.append(time.monotonic())
        for process in tree:
            # The guard, which goes on first, may have killed its child.
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
    for worker, (task, arguments) in zip(workers, STOPPED, strict=True):
        if task == "sync_ticks" and not arguments:
            assert worker.wait(30) == 70, fleet.log(worker)
        else:
            until(lambda worker=worker: "lease" in fleet.log(worker), "the worker has noticed")
    # 100 ms at the handlers' own pace, a record each 5 ms. A busy machine makes the pace slower, not the number.
    late = Counter(
        record["number"]
        for record in fleet.records()
        if record["pid"] in first and record["at"] > resumed[record["number"]]
    )
    assert max(late.values(), default=0) <= 20, f"records after SIGCONT: {late}"
    outcomes = json.loads(fleet.run(OUTCOMES.format(ids=ids)))
    assert [attempts[0] for attempts in outcomes] == ["lease_ended"] * len(STOPPED), outcomes


WORKERS = """
import asyncio, json, shop
async def main():
    workers = await shop.app.client.workers()
    print(json.dumps([(worker.session, worker.lease_until.timestamp()) for worker in workers]))
asyncio.run(main())
"""
WHO = "import json, shop; print(json.dumps(shop.whoami.submit_sync().result(timeout=60)))"


def test_an_idle_child_outlives_the_session_of_its_last_job(here):
    worker = here.start("--processes=1", LEASE)
    first = json.loads(here.run(WHO))
    ((session, lease_until),) = json.loads(here.run(WORKERS))
    # By the next renewal the child has been idle for a while.
    until(lambda: json.loads(here.run(WORKERS))[0][1] > lease_until, "the session is renewed")
    os.kill(worker.pid, signal.SIGSTOP)
    until(lambda: json.loads(here.run(WORKERS)) == [], "its lease is over")
    os.kill(worker.pid, signal.SIGCONT)
    until(lambda: json.loads(here.run(WORKERS)) not in ([], [[session, lease_until]]), "it has another session")
    assert json.loads(here.run(WORKERS))[0][0] != session
    second = json.loads(here.run(WHO))
    assert (second["pid"], second["attempt"]) == (first["pid"], 1), here.log(worker)
    here.end()


def test_a_handler_that_ignores_cancellation_ends_the_process(here):
    worker = here.start(LEASE, "--cancel-grace-ms=200")
    here.run("import shop; shop.deaf.submit_sync(1)")
    until(lambda: len(here.records()) == 1, "it runs")
    here.run("import asyncio, shop; asyncio.run(shop.app.client.cancel_jobs(states=['running']))")
    assert worker.wait(30) == 70, here.log(worker)
    assert any(record["what"] == "deaf" for record in here.records())
    assert "does not stop" in here.log(worker)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("segfault", "killed by signal 11 (SIGSEGV)"),
        ("exit", "exit code 3"),
        ("kill", "killed by signal 9 (SIGKILL)"),
        ("system_exit", "SystemExit: enough"),
    ],
)
def test_the_death_of_a_child_is_settled_at_once_and_said(here, how, said):
    # A lease of an hour: nothing but the death itself ends the attempt.
    here.start("--processes=2", "--default-lease-duration-secs=3600")
    told = here.run(
        f"""
        import shop, qo
        try:
            shop.dies.submit_sync({how!r}).result(timeout=60)
        except qo.JobFailed as failed:
            print(failed.error)
        print(shop.whoami.submit_sync().result(timeout=60)["attempt"])
        """
    )
    assert said in told
    assert told.endswith("\n1\n"), "another child has taken its place"
    here.end()


def test_a_child_that_talks_and_never_listens_is_heard(here):
    here.start("--processes=1", LEASE)
    assert int(here.run("import shop; print(shop.chatty.submit_sync(5.0).result(timeout=60))")) > 1000
    here.end()


def test_a_job_that_never_began_does_not_end_the_process(here):
    worker = here.start("--cancel-grace-ms=100")
    told = here.run(
        """
        import asyncio, qo, shop
        async def main():
            first = await shop.blocks.submit(1, seconds=3.0)
            while (await first.info()).state != "running":
                await asyncio.sleep(0.01)
            second = await shop.blocks.submit(2, seconds=0.0)
            while (await second.info()).state != "running":
                await asyncio.sleep(0.01)
            await second.cancel()
            print(await first.result(timeout=60))
            try:
                await second.result(timeout=60)
            except qo.JobCancelled:
                print("cancelled")
        asyncio.run(main())
        """
    )
    assert told == "1\ncancelled\n"
    assert [record["number"] for record in here.records()] == [1]
    assert worker.poll() is None, here.log(worker)
    here.end()


def test_children_are_replaced_after_so_many_jobs(here):
    here.start("--processes=1", "--recycle-jobs=2")
    told = here.run(
        """
        import asyncio, json, shop
        async def main():
            found = []
            for _ in range(5):
                job = await shop.whoami.submit()
                found.append((await job.result(timeout=60))["pid"])
            print(json.dumps([found, await job.logs()]))
        asyncio.run(main())
        """
    )
    pids, logs = json.loads(told)
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert logs == "said by a child\n"
    here.end()


@pytest.mark.parametrize("arguments", [[], ["--processes=2"]])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_process_ends_well(here, how, arguments):
    worker = here.start(*arguments)
    here.run("import shop; shop.sync_work.submit_sync(1, seconds=0.5); shop.work.submit_sync(2, seconds=0.5)")
    until(lambda: len(here.records()) == 2, "both run")
    below = children_of(worker.pid)
    worker.send_signal(how)
    assert worker.wait(30) == 0, here.log(worker)
    assert sorted(record["what"] for record in here.records()) == ["began", "began", "ended", "ended"]
    until(lambda: not any(os.path.exists(f"/proc/{child}") for child in below), "its children are gone")  # noqa: PTH110


def test_the_worker_says_its_settings_word_for_word(here):
    worker = here.start("--processes=4", "--max-claim-batch=2", "--cluster-wide-cap=20")
    line = "Concurrency config: processes=4, cluster_wide_cap=20, max_claim_per_worker=4, max_claim_batch=2"
    assert line in here.log(worker)
    here.end()


@pytest.mark.parametrize("arguments", [[], ["--processes=1"]])
def test_python_and_rust_log_lines_of_one_shape(here, arguments):
    worker = here.start(*arguments)
    here.run("import shop; shop.logs.submit_sync().result(timeout=60)")
    here.end()
    lines = here.log(worker).splitlines()
    assert any(line.endswith("Z  WARN shop: the shelf is empty") for line in lines), lines
    shape = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (DEBUG| INFO| WARN|ERROR) \S")
    assert [line for line in lines if not shape.match(line)] == []


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere:app", "there is no module nowhere"),
        ("shop:jobs", "shop has no jobs; it has app"),
        ("shop:note", "note"),
        ("broken:app", "ZeroDivisionError"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_named(here, target, said):
    (here.folder / "broken.py").write_text("1 / 0\n")
    ran = subprocess.run(
        [sys.executable, "-m", "qo", "worker", target],
        cwd=here.folder,
        env=here.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode in (1, 2)
    assert said in ran.stderr


def test_a_worker_starts_again_when_a_source_changes(here):
    worker = here.start("--reload")
    source = here.folder / "shop.py"
    source.write_text(source.read_text().replace('"attempt": ctx.attempt', '"attempt": 100'))
    until(lambda: here.log(worker).count("at work") == 2, "it has started again")
    assert here.run('import shop; print(shop.whoami.submit_sync().result(timeout=30)["attempt"])') == "100\n"
    here.end()


def run(script: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_child_that_was_forked_later_is_told_so(here):
    ran = run(
        """
        import asyncio, os, sys, qo
        app = qo.App(sys.argv[1])                      # opens nothing
        before = os.fork()
        if before == 0:
            asyncio.run(app.client.queues())           # a child that was forked before is fine
            os._exit(0)
        _, status = os.waitpid(before, 0)
        asyncio.run(app.client.queues())
        after = os.fork()
        if after == 0:
            folder = sys.argv[1].removeprefix("file:")
            links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
            print([link for link in links if os.path.lexists(link) and os.readlink(link).startswith(folder)])
            try:
                asyncio.run(app.client.queues())
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(after, 0)
        print(os.waitstatus_to_exitcode(status))
        """,
        here.url,
    )
    assert ran.stdout.startswith("[]\n"), ran
    assert "was forked from process" in ran.stdout
    assert ran.stdout.endswith("\n0\n")


def test_an_import_starts_no_thread():
    ran = run(
        """
        import qo
        import threading
        from pathlib import Path
        app = qo.App("memory:")
        @app.task
        async def work() -> None: ...
        print(len(list(Path("/proc/self/task").iterdir())), threading.active_count())
        """
    )
    assert ran.stdout == "1 1\n", ran


def test_many_starts_and_stops_leave_nothing_behind():
    ran = run(
        """
        import asyncio, gc, qo, threading, os
        async def once():
            app = qo.App("memory:")
            @app.task("work")
            async def work() -> int:
                return 1
            @app.task("sync_work")
            def sync_work() -> int:
                return 2
            working = asyncio.ensure_future(app.run(until_signal=False))
            jobs = [await work.submit(), await sync_work.submit()]
            assert [await job.result(timeout=30) for job in jobs] == [1, 2]
            app.shutdown()
            await working
            await app.close()
        asyncio.run(once())
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            asyncio.run(once())
        gc.collect()
        print(threading.active_count(), len(os.listdir("/proc/self/fd")) - before)
        """
    )
    assert (ran.stdout, ran.stderr) == ("1 0\n", ""), ran


def test_a_process_that_ends_with_calls_under_way_ends_well(here):
    script = """
        import asyncio, sys, qo
        async def main():
            client = qo.Client(sys.argv[1])
            await client.queues()
            calls = [asyncio.ensure_future(client.queues()) for _ in range(200)]
            await calls[int(sys.argv[2])]
        asyncio.run(main())
        """
    ended = [run(script, here.url, str(number * 10)) for number in range(20)]
    assert [(ran.returncode, ran.stderr) for ran in ended] == [(0, "")] * 20
