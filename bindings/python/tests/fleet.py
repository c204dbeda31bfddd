"""Worker processes, and what their jobs wrote down."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

PATIENCE = 60.0

MODULE = """
import asyncio, ctypes, json, logging, os, signal, sys, time
import qo

app = qo.App(os.environ["SHOP_URL"], name="shop")


def note(what, number, **more):
    line = json.dumps({"what": what, "number": number, "pid": os.getpid(), "at": time.monotonic(), **more}) + "\\n"
    out = os.open(os.environ["SHOP_RECORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, line.encode())
    os.close(out)


@app.task("work", max_concurrent=3, max_attempts=9)
async def work(number: int, seconds: float = 0.1) -> int:
    note("began", number)
    try:
        await asyncio.sleep(seconds)
    finally:
        note("ended", number)
    return number


@app.task("sync_work", max_concurrent=3, max_attempts=9)
def sync_work(number: int, seconds: float = 0.1) -> int:
    note("began", number)
    time.sleep(seconds)
    note("ended", number)
    return number


@app.task("ticks")
async def ticks(number: int) -> None:
    while True:
        note("tick", number)
        await asyncio.sleep(0.005)


@app.task("sync_ticks")
def sync_ticks(number: int) -> None:
    while True:
        note("tick", number)
        time.sleep(0.005)


@app.task("deaf")
async def deaf(number: int) -> None:
    note("began", number)
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            note("deaf", number)


@app.task("dies", max_attempts=1)
def dies(how: str) -> None:
    note("began", 0)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "system_exit":
        sys.exit("enough")


@app.task("chatty", max_attempts=1)
def chatty(seconds: float) -> int:
    # It never asks for anything, and says a lot: it does not read what its worker says.
    note("began", 0)
    end = time.monotonic() + seconds
    lines = 0
    while time.monotonic() < end:
        qo.current().log("x" * 1000)
        lines += 1
    return lines


@app.task("blocks")
async def blocks(number: int, seconds: float) -> int:
    note("began", number)
    time.sleep(seconds)
    return number


@app.task("logs")
def logs() -> None:
    logging.getLogger("shop").warning("the shelf is empty")


@app.task("whoami")
def whoami(ctx: qo.Context) -> dict:
    ctx.log("said by a child")
    return {"pid": os.getpid(), "attempt": ctx.attempt, "job": ctx.job}
"""


class Fleet:
    """Workers of one app, as processes of their own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.records_file = folder / "records"
        self.environment = os.environ | {"SHOP_URL": url, "SHOP_RECORDS": str(self.records_file), "QO_LOG": "info"}
        (folder / "shop.py").write_text(MODULE)
        self.url = url
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `qo worker shop:app`, and wait until it is at work."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "qo", "worker", "shop:app", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers.append(process)
        until(lambda: "at work" in log.read_text() or process.poll() is not None, "a worker at work")
        assert process.poll() is None, log.read_text()
        return process

    def log(self, worker: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"worker-{self.workers.index(worker)}.log").read_text()

    def records(self) -> list[dict]:
        lines = self.records_file.read_text().splitlines() if self.records_file.exists() else []
        return [json.loads(line) for line in lines]

    def run(self, script: str) -> str:
        """Run a program beside the app, and return what it prints."""
        ran = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def end(self, *, code: int = 0) -> None:
        """Let all workers drain."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(PATIENCE) == code, self.log(worker)

    def kill(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait(PATIENCE)


def until(is_so, what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {patience} s"
        time.sleep(0.01)


def children_of(process: int) -> list[int]:
    """All processes below one."""
    below: list[int] = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            child = int(place.parent.name)
            below += [child, *children_of(child)]
    return below


def state_of(process: int) -> str:
    """Whether a process runs (R), sleeps (S), is stopped (T)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def most_at_once(records: list[dict], died: dict[int, float]) -> int:
    """The highest number of jobs at once. `died` says when processes ended that could not write it down."""
    edges = []
    open_runs: dict[tuple[int, int], float] = {}
    for record in sorted(records, key=lambda record: record["at"]):
        run = (record["number"], record["pid"])
        if record["what"] == "began":
            open_runs[run] = record["at"]
        elif record["what"] == "ended" and run in open_runs:
            edges += [(open_runs.pop(run), 1), (record["at"], -1)]
    for (_, pid), began in open_runs.items():
        edges += [(began, 1), (died[pid], -1)]
    now = most = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    return most
