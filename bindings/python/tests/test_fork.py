"""Forks: what a child may use, and what it keeps."""

import subprocess
import sys
import textwrap


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_import_and_an_app_open_nothing_and_start_no_thread(here):
    ran = run(
        """
        import os, sys
        before = sorted(os.listdir("/proc/self/fd"))
        import qo, qo.sync
        app = qo.App(sys.argv[1], name="shop")
        @app.task
        def work() -> None: ...
        work.job()
        client = app.client
        print(len(os.listdir("/proc/self/task")), sorted(os.listdir("/proc/self/fd")) == before)
        """,
        here,
    )
    assert ran.stdout == "1 True\n", ran


def test_children_that_are_forked_before_the_first_use_each_connect(here):
    ran = run(
        """
        import multiprocessing, sys, qo
        app = qo.sync.App(sys.argv[1])
        @app.task("work")
        def work(number: int) -> None: ...
        def child(number):
            return work.submit(number).info().payload["number"]
        with multiprocessing.get_context("fork").Pool(3) as pool:
            print(sorted(pool.map(child, range(6))))
        """,
        here,
    )
    assert ran.stdout == f"{list(range(6))}\n", ran


def test_a_child_that_is_forked_later_is_told_so_and_may_connect(here):
    ran = run(
        """
        import os, sys, qo
        app = qo.sync.App(sys.argv[1])
        app.client.queues()
        child = os.fork()
        if child == 0:
            try:
                app.client.queues()
            except RuntimeError as error:
                print(error, flush=True)
            with qo.sync.connect(sys.argv[1]) as own:
                print(own.submit("work").info().state, flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        """,
        here,
    )
    first, *rest = ran.stdout.splitlines()
    assert "was forked from process" in first, ran
    assert "call connect() in this process" in first
    assert rest == ["pending", "0"], ran


def test_a_child_keeps_no_file_of_the_namespace_open(here):
    ran = run(
        """
        import os, sys, qo
        folder = os.path.realpath(sys.argv[1].removeprefix("file:"))
        def held():
            links = []
            for name in os.listdir("/proc/self/fd"):
                try:
                    links.append(os.readlink(f"/proc/self/fd/{name}"))
                except OSError:
                    pass
            return [link for link in links if link.startswith(folder)]
        client = qo.sync.connect(sys.argv[1])
        client.submit("work")
        print(bool(held()))
        child = os.fork()
        if child == 0:
            print(held(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(client.submit("work").info().state)
        """,
        here,
    )
    assert ran.stdout == "True\n[]\npending\n", ran
