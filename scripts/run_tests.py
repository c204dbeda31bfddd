#!/usr/bin/env python3
"""Builds every test of the workspace and runs the test programs side by side.

    scripts/run_tests.py [--at-once N] [--fast] [NAME...]

`cargo test` runs one test program after another, and most of them wait: for a
lease, a process, a server. This program runs N of them at once (default: the
number of CPUs), the slowest first, by what they took the last time. Programs
in ALONE disturb others and run by themselves. Doc tests, the Python package
(scripts/test_python.py) and the HTTP interface (scripts/test_api.py) come last.

NAME picks test programs by a part of `crate/program`: `qo-postgres/equality`.

--fast builds and runs what needs no server and takes seconds: for every save.

A program that ends well is one line. The output of one that fails is shown at
once, and again the command that repeats it. The last lines are the ten slowest
tests. How long each program took is kept in the target folder.

Why not cargo-nextest: it starts a process for each of 7,000 tests, and each
of them would open its servers' namespaces anew.

Exit status: 0 if all passed, 1 if a test failed, 2 if the build failed, 130
after Ctrl-C, which ends the programs that run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

CARGO = os.environ.get("CARGO", "cargo")
WHAT = ["--workspace", "--locked", "--features", "qo-cli/bench,qo-cli/guard"]
# One crashes the PostgreSQL server that others use, the other counts the pages that it reads there.
ALONE = {"qo/chaos", "qo-postgres/backlog"}
# Without an earlier run: what is known to take long, so that it does not come last.
SLOW = ["equality", "conformance", "served", "bucket", "conformance_worker", "conformance_pooler", "attack", "processes"]
# What is not a test program of cargo.
SCRIPTS = ["scripts/test_python.py", "scripts/test_api.py", "scripts/test_page.py"]
SLOWEST = 10
# Unit tests, and the programs that find most mistakes in the shortest time without a server.
FAST = {
    "qo-object/conformance_directory",
    "qo-object/directory",
    "qo-testkit/conformance",
    "qo-testkit/proof",
    "qo/runtime",
}
# Tests of those programs that need a real server.
FAST_SKIPS = ["--skip", "servers::"]
# What the bucket in memory accepts; scripts/with_s3.py sets the same.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "qo-test-key",
    "AWS_SECRET_ACCESS_KEY": "qo-test-secret",
    "AWS_REGION": "us-east-1",
}
# libtest tells times with an unstable option, which it accepts with this variable set.
TIMES = ["-Zunstable-options", "--report-time"]
TEST = re.compile(r"^test (\S+) \.\.\. ok <([0-9.]+)s>$", re.MULTILINE)
RESULT = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed", re.MULTILINE)


@dataclass
class Program:
    """A test program that was built."""

    name: str
    executable: str
    folder: Path


@dataclass
class Ran:
    """What came of one."""

    program: Program
    seconds: float
    status: int
    output: str


def build(fast: bool) -> list[Program]:
    """Builds all test programs, or the fast ones; cargo says on stderr how it goes."""
    command = [CARGO, "test", *WHAT, "--no-run", "--message-format=json-render-diagnostics"]
    if fast:
        tests = sorted({name.split("/")[1] for name in FAST})
        command += ["--lib", "--bins", *(word for test in tests for word in ("--test", test))]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(2)
    programs = []
    for line in built.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        if not message["profile"]["test"]:
            continue
        folder = Path(message["manifest_path"]).parent
        name = f"{folder.name}/{message['target']['name']}"
        if message["target"]["kind"] != ["test"]:
            name += f" ({message['target']['kind'][0]})"
        programs.append(Program(name, message["executable"], folder))
    return programs


class Runner:
    """Runs programs side by side."""

    def __init__(self, programs: list[Program], at_once: int, times: dict[str, float], fast: bool) -> None:
        def expected(program: Program) -> float:
            slow = program.name.split("/")[1] in SLOW
            return times.get(program.name, 60.0 if slow else 1.0)

        self.waiting = sorted(programs, key=expected)
        self.at_once = at_once
        self.skips = FAST_SKIPS if fast else []
        self.environment = os.environ | {"RUSTC_BOOTSTRAP": "1"} | (CREDENTIALS if fast else {})
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopped = False
        self.done: list[Ran] = []

    def run(self) -> None:
        alone = [program for program in self.waiting if program.name in ALONE]
        self.waiting = [program for program in self.waiting if program.name not in ALONE]
        threads = [threading.Thread(target=self.work) for _ in range(self.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            # In pieces, so that Ctrl-C is heard.
            while thread.is_alive():
                thread.join(0.2)
        self.waiting = alone
        self.work()

    def work(self) -> None:
        while True:
            with self.lock:
                if self.stopped or not self.waiting:
                    return
                program = self.waiting.pop()
            self.one(program)

    def one(self, program: Program) -> None:
        environment = self.environment | {"CARGO_MANIFEST_DIR": str(program.folder)}
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [program.executable, *TIMES, *self.skips],
                cwd=program.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            with self.lock:
                self.running.add(process)
            status = process.wait()
            with self.lock:
                self.running.discard(process)
            output.seek(0)
            text = output.read().decode(errors="replace")
        ran = Ran(program, time.monotonic() - started, status, text)
        with self.lock:
            self.done.append(ran)
            if not self.stopped:
                tell(ran)

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            for process in self.running:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)


def tell(ran: Ran) -> None:
    passed = sum(int(count) for count, _ in RESULT.findall(ran.output))
    tests = f", {passed} tests" if passed else ""
    word = "ok    " if ran.status == 0 else "FAILED"
    print(f"{word} {ran.program.name:<32} {ran.seconds:6.1f} s{tests}", flush=True)
    if ran.status != 0:
        print(ran.output, flush=True)
        print(f"again: (cd {ran.program.folder} && {ran.program.executable})", flush=True)


def slowest(done: list[Ran]) -> None:
    tests = [
        (float(seconds), f"{ran.program.name} {test}") for ran in done for test, seconds in TEST.findall(ran.output)
    ]
    print(f"\nThe {SLOWEST} slowest tests:")
    for seconds, test in sorted(tests, reverse=True)[:SLOWEST]:
        print(f"{seconds:7.1f} s  {test}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds and runs the tests of the workspace.")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 2, help="test programs at once")
    parser.add_argument("--fast", action="store_true", help="only what needs no server and takes seconds")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of crate/program")
    arguments = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)
    programs = build(arguments.fast)
    if arguments.fast:
        # Cargo picks test programs by their name alone, in every crate that has one of that name.
        programs = [program for program in programs if program.name in FAST or program.name.endswith(")")]
    if arguments.names:
        programs = [program for program in programs if any(name in program.name for name in arguments.names)]
        if not programs:
            print(f"no test program is called {' or '.join(arguments.names)}", file=sys.stderr)
            return 2
    memory = Path(programs[0].executable).parent.parent / "test-seconds.json"
    times: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError):
        times = json.loads(memory.read_text())
    runner = Runner(programs, max(1, arguments.at_once), times, arguments.fast)
    try:
        runner.run()
    except KeyboardInterrupt:
        runner.stop()
        return 130
    times |= {ran.program.name: round(ran.seconds, 1) for ran in runner.done}
    with contextlib.suppress(OSError):
        memory.write_text(json.dumps(times, indent=1, sort_keys=True))
    failed = [ran for ran in runner.done if ran.status != 0]
    if not arguments.names and not arguments.fast:
        documents = subprocess.run([CARGO, "test", *WHAT, "--doc", "-q"], check=False)
        failed += [] if documents.returncode == 0 else [Ran(Program("doc tests", "", Path()), 0, 1, "")]
        for script in SCRIPTS:
            done = subprocess.run([script], check=False)
            failed += [] if done.returncode == 0 else [Ran(Program(script, "", Path()), 0, 1, "")]
    slowest(runner.done)
    if failed:
        print(f"\nFAILED: {', '.join(ran.program.name for ran in failed)}")
        return 1
    print(f"\nall passed: {len(runner.done)} programs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
