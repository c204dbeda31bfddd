"""A drain: jobs are submitted, then a worker starts and runs them all."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ground import SIDES, Failure

if TYPE_CHECKING:
    from ground import Ground

NUMBERS = itertools.count(1)
PATIENCE = 900.0
"""Seconds that a drain may take."""


@dataclass(frozen=True)
class Side:
    """A worker, and how its jobs get there."""

    name: str
    kind: str
    """`qo`, `celery` or `procrastinate`: whose jobs they are, and who says that they are settled."""
    command: tuple[str, ...]
    """Of the worker: `{bin}` is the folder of its environment's programs, `{rust}` the Rust side's program."""
    task: str = "noop"
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drained:
    """What a drain took."""

    jobs: int
    seconds: float
    """From the beginning of the first job until the store has settled the last."""
    handlers: float
    """From the beginning of the first job to the end of the last one, by the jobs' own records."""
    from_start: float
    """From the start of the worker's process, which includes the start of Python."""
    peak_mib: float
    """The most memory that the worker's process had, its children not counted."""

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds


def drain(ground: Ground, side: Side, jobs: int) -> Drained:
    """Drain a fresh namespace, and leave nothing behind."""
    number = next(NUMBERS)
    records = ground.folder / f"records-{number}"
    records.mkdir()
    schema = f"qo_bench_python_{number}"
    variables = {
        "BENCH_RECORDS": str(records),
        "BENCH_SCHEMA": schema,
        "BENCH_STORE": f"{ground.server}?schema={schema}",
        "BENCH_JOBS": str(jobs),
        **side.variables,
    }
    # qo makes its schema itself.
    ground.schema("drop" if side.kind == "qo" else "create", schema)
    try:
        python = ground.qo if side.kind == "qo" else ground.peers
        ground.run([python, SIDES / f"{side.kind}_side.py", "submit", side.task, jobs], **variables)
        if side.kind != "celery":
            ground.schema("settle", schema)
        return timed(ground, side, jobs, variables)
    finally:
        ground.schema("drop", schema)
        shutil.rmtree(records)


def timed(ground: Ground, side: Side, jobs: int, variables: dict[str, str]) -> Drained:
    """Start the worker, and watch until all is settled."""
    python = ground.qo if side.kind == "qo" else ground.peers
    places = {"bin": str(python.parent), "rust": str(ground.rust)}
    command = [word.format(**places) for word in side.command]
    environment = ground.environment(**variables)
    log = ground.folder / "worker.log"
    watch = [python, SIDES / "watch.py", f"{side.kind}_side", jobs, PATIENCE]
    watcher = subprocess.Popen(
        [str(word) for word in watch], cwd=ground.folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        if not watcher.stdout or watcher.stdout.readline().strip() != "ready":
            raise Failure(f"{side.name}: the jobs cannot be watched")
        with log.open("wb") as output:
            began = time.monotonic_ns()
            worker = subprocess.Popen(command, cwd=ground.folder, env=environment, stdout=output, stderr=output)
        try:
            said, peak = wait(watcher, worker, jobs), peak_mib(worker.pid)
        except Failure as failure:
            raise Failure(f"{side.name}: {failure}; the worker says:\n{tail(log)}") from None
        finally:
            end(worker)
    finally:
        watcher.kill()
        watcher.wait()
    first, last, settled = said["first_ns"], said["last_ns"], said["settled_ns"]
    return Drained(jobs, (settled - first) / 1e9, (last - first) / 1e9, (settled - began) / 1e9, peak)


def wait(watcher: subprocess.Popen[str], worker: subprocess.Popen[bytes], jobs: int) -> dict[str, int]:
    """Wait for what the watcher says. A worker that ends before is an error."""
    while watcher.poll() is None:
        if worker.poll() is not None:
            raise Failure(f"the worker ended with {worker.returncode}")
        time.sleep(0.05)
    told = watcher.stdout.read() if watcher.stdout else ""
    if not told:
        raise Failure("the jobs have not ended")
    said: dict[str, int] = json.loads(told)
    if said["count"] != jobs:
        raise Failure(f"{said['count']} runs of {jobs} jobs")
    return said


def peak_mib(process: int) -> float:
    """Return the most memory that a process has had."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def end(worker: subprocess.Popen[bytes]) -> None:
    """Let a worker drain; kill it if it does not."""
    if worker.poll() is None:
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(timeout=30)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def tail(log: Path) -> str:
    """Return the last lines of what a worker wrote."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
