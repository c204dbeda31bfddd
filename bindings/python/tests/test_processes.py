"""Workers that are processes: killed, forked, told to stop."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

WORKER = """
import asyncio, json, os, sys, time
import qo

app = qo.App(sys.argv[1])

@app.task("work", max_concurrent=3)
async def work(number: int) -> int:
    began = time.time()
    await asyncio.sleep(0.1)
    with open(sys.argv[2], "a") as out:
        out.write(json.dumps([number, os.getpid(), began, time.time()]) + "\\n")
    return number

print("ready", flush=True)
asyncio.run(app.run(lease=5.0))
print("ended", flush=True)
"""


def start(folder, url, records):
    program = folder / "worker.py"
    program.write_text(WORKER)
    process = subprocess.Popen([sys.executable, str(program), url, str(records)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def run(script: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def most_at_once(records) -> int:
    edges = sorted([(began, 1) for *_, began, _ in records] + [(ended, -1) for *_, ended in records])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_process_ends_well(tmp_path, here, how):
    records = tmp_path / "records"
    worker = start(tmp_path, here, records)
    ran = run(
        """
        import asyncio, sys, qo
        async def main():
            queue = await qo.connect(sys.argv[1])
            job = await queue.submit("work", {"number": 1})
            print(await job.result(timeout=30))
        asyncio.run(main())
        """,
        here,
    )
    assert ran.stdout == "1\n", ran.stderr
    worker.send_signal(how)
    assert worker.wait(30) == 0
    assert worker.stdout.read() == "ended\n"


def test_a_limit_holds_across_processes_one_of_which_is_killed(tmp_path, here):
    records = tmp_path / "records"
    workers = [start(tmp_path, here, records) for _ in range(4)]
    submitting = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import asyncio, sys, qo
                async def main():
                    queue = await qo.connect(sys.argv[1])
                    jobs = [await queue.submit("work", {"number": n}) for n in range(60)]
                    print(sorted([await job.result(timeout=60) for job in jobs]) == list(range(60)))
                asyncio.run(main())
                """
            ),
            here,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not records.exists() or len(records.read_text().splitlines()) < 9:
        assert time.monotonic() < deadline
        os.sched_yield()
    workers[0].kill()
    assert submitting.communicate(timeout=90)[0] == "True\n"
    for worker in workers[1:]:
        worker.send_signal(signal.SIGTERM)
    assert [worker.wait(30) for worker in workers[1:]] == [0, 0, 0]
    told = [json.loads(line) for line in records.read_text().splitlines()]
    assert {number for number, *_ in told} == set(range(60))
    assert most_at_once(told) == 3


def test_a_child_that_was_forked_later_is_told_so(here):
    ran = run(
        """
        import asyncio, os, sys, qo
        app = qo.App(sys.argv[1])                      # opens nothing
        before = os.fork()
        if before == 0:
            asyncio.run(app.client.call("now"))        # a child that was forked before is fine
            os._exit(0)
        _, status = os.waitpid(before, 0)
        asyncio.run(app.client.call("now"))
        after = os.fork()
        if after == 0:
            try:
                asyncio.run(app.client.call("now"))
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(after, 0)
        print(os.waitstatus_to_exitcode(status))
        """,
        here,
    )
    assert "was forked from process" in ran.stdout, ran
    assert ran.stdout.endswith("\n0\n")


def test_an_import_is_fast_and_starts_no_thread():
    ran = run(
        """
        import time
        began = time.perf_counter()
        import qo
        import threading
        from pathlib import Path
        qo.App("memory:")
        print(len(list(Path("/proc/self/task").iterdir())), threading.active_count())
        """
    )
    assert ran.stdout == "1 1\n", ran


def test_many_starts_and_stops_leave_nothing_behind():
    ran = run(
        """
        import asyncio, qo, threading
        async def once():
            app = qo.App("memory:")
            @app.task("work")
            async def work() -> int:
                return 1
            working = asyncio.ensure_future(app.run(until_signal=False))
            job = await work.submit()
            assert await job.result(timeout=30) == 1
            app.shutdown()
            await working
        for _ in range(100):
            asyncio.run(once())
        print(threading.active_count())
        """
    )
    assert (ran.stdout, ran.stderr) == ("1\n", ""), ran
