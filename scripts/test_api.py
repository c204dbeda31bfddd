#!/usr/bin/env python3
"""Tests the HTTP interface of a real `qo serve` by its own OpenAPI document.

    scripts/test_api.py [--qo PATH] [--examples N] [--seed N] [SCHEMATHESIS_ARGUMENT...]

1. Starts `qo serve` and a worker on a directory, and brings jobs, groups, a
   workflow, a schedule and slots into many states.
2. Reads every list and every detail of them, and holds each answer against its
   schema in the document.
3. Lets schemathesis make requests from the document, good and bad ones: no
   answer may be a server error, and each must be as the document says.

`qo` is that of the target folder, which the tests have built. schemathesis is
installed in the cache folder ${XDG_CACHE_HOME:-~/.cache}/qo.

Exit status: 0 if all is well, 1 if an answer was wrong, 2 if it could not start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMATHESIS = "4.32.5"
# Most examples of each operation: about half a minute in all.
EXAMPLES = 10
SEED = 19
PATIENCE = 30.0
# A stream has no end.
STREAMS = ["/api/v1/events"]
# What schemathesis holds every answer against.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
]
CONFIGURATION = """
app = "shop"
[concurrency.limits]
nap = 2
"nap/*" = 1
[queues.slow]
priority = 5
max_concurrency = 7
[schedules.nightly]
cron = "0 3 * * *"
task = "ok"
payload = { n = 1 }
[retention]
failed = "7d"
"""


def environment() -> Path:
    """The Python of a virtual environment with schemathesis; made if it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = base / "qo" / f"schemathesis-{SCHEMATHESIS}"
    python = place / "bin" / "python"
    if not (place / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"schemathesis=={SCHEMATHESIS}"]
        subprocess.run([python, *install], check=True)
        (place / "done").touch()
    return python


def built() -> Path:
    """`qo`, as the tests have built it."""
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--no-deps", "--format-version", "1"]
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return Path(json.loads(told.stdout)["target_directory"]) / "debug" / "qo"


class Server:
    """A `qo serve` on a directory of its own, and the command line of its store."""

    def __init__(self, qo: Path, folder: Path) -> None:
        self.qo = qo
        self.folder = folder
        names = [name for name in os.environ if not name.startswith("QO_")]
        self.environment = {name: os.environ[name] for name in names} | {"QO_STORE": f"file:{folder / 'store'}"}
        self.headers = {}
        self.started: list[subprocess.Popen[str]] = []
        (folder / ".qo.toml").write_text(CONFIGURATION)

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [str(self.qo), *words]
        log = (self.folder / f"{words[0]}-{len(self.started)}.log").open("w")
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=log
        )
        self.started.append(process)
        return process

    def run(self, *words: str) -> str:
        command = [str(self.qo), *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, check=True
        )
        return done.stdout.strip()

    def serve(self) -> str:
        """Start the server. Return its address."""
        process = self.start("serve", "--listen", "127.0.0.1:0")
        line = process.stdout.readline() if process.stdout else ""
        _, _, address = line.strip().rpartition(" ")
        if not address.startswith("http://"):
            print(f"qo serve did not start: {line!r}", file=sys.stderr)
            sys.exit(2)
        # Once a token exists every request needs one, and schemathesis creates some.
        token = json.loads(self.run("token", "create", "test", "--scope", "admin", "--json"))["token"]
        self.headers = {"Authorization": f"Bearer {token}"}
        return address

    def stop(self) -> None:
        for process in reversed(self.started):
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def send(self, url: str, body: Any = None, method: str | None = None) -> tuple[int, str, str]:
        """Send a request. Return the status, the content type and the body of the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, self.headers | {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.headers.get_content_type(), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get_content_type(), error.read().decode()


def until(what: str, holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            print(f"not in time: {what}", file=sys.stderr)
            sys.exit(1)
        time.sleep(0.05)


def fill(server: Server, api: str) -> None:
    """Bring everything into many states."""
    tasks = ["ok=echo log >&2; echo 1", "nap=exec sleep 600", "bad=exit 100", "later=exit 75"]
    server.start("worker", *(word for task in tasks for word in ("--task", task)), "--processes", "20")

    def submit(**job: Any) -> str:
        status, _, text = server.send(f"{api}/jobs", job)
        assert status in (200, 201), text
        return str(json.loads(text)["id"])

    def state(job: str) -> str:
        return str(json.loads(server.send(f"{api}/jobs/{job}")[2])["state"])

    done = submit(task="ok", payload={"n": 1.0e3}, key="a/b", limits={"gpu": 1}, idempotency_key="k")
    for _ in range(3):
        submit(task="nap", key="ann", priority=-3)
    failed = submit(task="bad", workflow="halted")
    submit(task="ok", workflow="halted")
    submit(task="later")
    submit(task="ok", delay="1h", good_until="2h", timeout="60s", limit=3)
    submit(task="missing", queue="slow", traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    server.send(f"{api}/groups/zero/limit", {"limit": 0}, "PUT")
    submit(task="zero")
    server.send(f"{api}/queues/slow/pause", method="PUT")
    server.send(f"{api}/slots", {"group": "script/eu", "holder": "cron", "lease": "600s", "limit": 2})
    until("a job has ended", lambda: state(done) == "succeeded")
    until("a job has failed", lambda: state(failed) == "failed")


def walk(server: Server, api: str, document: dict[str, Any]) -> list[str]:
    """Read every list and every detail. Return what was not as the document says."""
    import jsonschema_rs  # noqa: PLC0415 (of the virtual environment)

    wrong: list[str] = []
    seen: dict[str, list[dict[str, Any]]] = {}

    def read(template: str, path: str, query: str = "") -> Any:
        described = document["paths"][f"/api/v1{template}"]["get"]["responses"]["200"]["content"]
        status, kind, text = server.send(f"{api}{path}{query}")
        if status != 200 or kind not in described:
            wrong.append(f"GET {path}: {status} {kind} {text[:200]}")
            return None
        if kind != "application/json":
            return text
        schema = described[kind]["schema"] | {"components": document["components"]}
        answer = json.loads(text)
        validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
        wrong.extend(f"GET {path}: {error}" for error in validator.iter_errors(answer))
        return answer

    lists = ["jobs", "groups", "queues", "workers", "workflows", "schedules", "tokens", "configurations"]
    for name in [*lists, "pushes", "audit", "status"]:
        answer = read(f"/{name}", f"/{name}")
        seen[name] = answer.get("entries" if name == "audit" else name, []) if name != "status" else [answer]
        if not seen[name]:
            wrong.append(f"GET /{name}: the list is empty, so nothing was tested")
    for job in seen["jobs"]:
        for part in ["", "/explain", "/logs", "/log"]:
            read("/jobs/{job}" + part, f"/jobs/{job['id']}{part}")
    for group in seen["groups"]:
        read("/groups/{group}", "/groups/" + urllib.parse.quote(group["group"], safe=""))
    for workflow in seen["workflows"]:
        read("/workflows/{workflow}", f"/workflows/{workflow['workflow']}")
    read("/jobs/{job}", f"/jobs/{seen['jobs'][0]['id']}", "?wait=1s")
    read("/openapi.json", "/openapi.json")
    return wrong


def fuzz(server: Server, api: str, arguments: argparse.Namespace, rest: list[str]) -> bool:
    """Let schemathesis make requests."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{api}/openapi.json"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", str(arguments.examples), "--seed", str(arguments.seed)]
    command += ["--workers", "2", "--phases", "examples,coverage,fuzzing", "--no-color", "--continue-on-failure"]
    command += ["--warnings", "off", "--request-timeout", "70", "--generation-database", "none"]
    command += [word for path in STREAMS for word in ("--exclude-path", path)]
    command += [word for name, value in server.headers.items() for word in ("--header", f"{name}:{value}")]
    return subprocess.run([*command, *rest], cwd=server.folder, check=False).returncode == 0


@contextlib.contextmanager
def serving(qo: Path) -> Iterator[tuple[Server, str]]:
    with tempfile.TemporaryDirectory(prefix="qo-api-") as folder:
        server = Server(qo, Path(folder))
        try:
            yield server, f"{server.serve()}/api/v1"
        finally:
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests the HTTP interface by its own document.")
    parser.add_argument("--qo", type=Path, help="the program to test")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="examples of each operation")
    parser.add_argument("--seed", type=int, default=SEED, help="makes the same requests again")
    arguments, rest = parser.parse_known_args()
    python = environment()
    if Path(sys.prefix) != python.parent.parent:
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    qo = arguments.qo or built()
    if not qo.is_file():
        print(f"{qo} is missing: scripts/run_tests.py builds it", file=sys.stderr)
        return 2
    with serving(qo) as (server, api):
        fill(server, api)
        document = json.loads(server.send(f"{api}/openapi.json")[2])
        wrong = walk(server, api, document)
        print(*wrong, sep="\n", file=sys.stderr)
        fuzzed = fuzz(server, api, arguments, rest)
        # It must still be well.
        lives = server.send(f"{api.removesuffix('/api/v1')}/readyz")[0] == 200
    return 0 if fuzzed and lives and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
