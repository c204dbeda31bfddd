"""What a run stands on: interpreters with the packages, Redis, the Rust program, and schemas of the server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import ROOT, say

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
SIDES = HERE / "sides"
REQUIREMENTS = HERE / "requirements.txt"
PACKAGE = ROOT / "bindings" / "python"
EXAMPLE = "python_bench"
SHOWN = ("celery", "kombu", "redis", "procrastinate", "psycopg")
VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps([sys.version.split()[0], {name: version(name) for name in sys.argv[1:]}]))
"""
REDIS_SETTINGS = {"bind": "127.0.0.1", "save": "", "appendonly": "no"}


class Failure(Exception):
    """What ends the run, told without a traceback."""


@dataclass
class Ground:
    """Where the sides run."""

    server: str
    redis: str
    folder: Path
    """Everything that this run writes; removed at its end."""
    qo: Path
    """The interpreter that has qo, and nothing else that counts."""
    peers: Path
    """The interpreter that has the peers."""
    rust: Path | None
    facts: dict[str, Any] = field(default_factory=dict)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a side's process. Variables of qo would change what is measured."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("QO_", "BENCH_"))}
        own = {"PYTHONPATH": str(SIDES), "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | own | {"BENCH_SERVER": self.server, "BENCH_REDIS": self.redis} | more

    def run(self, command: Sequence[object], **more: str) -> str:
        """Run a command of a side to its end, and return what it wrote."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment(**more), check=False, stdout=subprocess.PIPE, text=True
        )
        if done.returncode != 0:
            raise Failure(f"{' '.join(words)} ended with {done.returncode}")
        return done.stdout

    def schema(self, what: str, schema: str) -> None:
        """Create, settle or drop a schema."""
        self.run([self.peers, SIDES / "server.py", what, schema])

    def learn(self) -> None:
        """Find out what the figures depend on."""
        python, versions = json.loads(self.run([self.peers, "-c", VERSIONS, *SHOWN]))
        qo_python, own = json.loads(self.run([self.qo, "-c", VERSIONS, "qo-queue"]))
        told = subprocess.run(["redis-server", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
        redis = next((word[2:] for word in told.split() if word.startswith("v=")), told)
        self.facts = {
            "python": qo_python if qo_python == python else f"{qo_python} for qo, {python} for the peers",
            "packages": own | versions,
            "postgres": json.loads(self.run([self.peers, SIDES / "server.py", "facts"])),
            "redis": {"server_version": redis, **REDIS_SETTINGS},
            "commit": commit(),
        }


def commit() -> str:
    """Return the commit of the checkout, with a mark if it was changed."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )
    return told.stdout.strip() or "unknown"


def prepare(options: Namespace, folder: Path, stack: contextlib.ExitStack) -> Ground:
    """Build, install and start everything, before anything is timed."""
    peers = peers_environment(options.python)
    qo = options.qo_python or qo_environment(options, folder)
    rust = None if options.without_rust else options.rust or build_rust()
    redis = stack.enter_context(redis_server(folder / "redis"))
    ground = Ground(options.server, redis, folder, qo, peers, rust)
    ground.learn()
    return ground


def cache_folder() -> Path:
    """Return the folder for what later runs use again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "qo" / "bench-python"


def pip(python: Path, *words: object) -> None:
    """Run pip of an environment."""
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    if subprocess.run([str(word) for word in command], check=False).returncode != 0:
        raise Failure(f"pip failed: {' '.join(str(word) for word in words)}")


def make_environment(interpreter: str, folder: Path) -> Path:
    """Make an empty virtual environment, and return its interpreter."""
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def peers_environment(interpreter: str) -> Path:
    """Return the interpreter of an environment with the peers; the cache keeps it."""
    version = subprocess.run([interpreter, "-VV"], check=True, stdout=subprocess.PIPE).stdout
    key = hashlib.sha256(version + REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"peers-{key}"
    whole = folder / "whole"
    if not whole.exists():
        say(f"installing the peers of {REQUIREMENTS.relative_to(ROOT)}")
        shutil.rmtree(folder, ignore_errors=True)
        pip(make_environment(interpreter, folder), "install", "--requirement", REQUIREMENTS)
        whole.touch()
    return folder / "bin" / "python"


def qo_environment(options: Namespace, folder: Path) -> Path:
    """Install a release wheel of qo into an environment of its own: the given one, or one of this checkout."""
    python = make_environment(options.python, folder / "qo")
    wheel = options.wheel
    if wheel is None:
        say("building the wheel")
        pip(python, "wheel", "--no-deps", "--wheel-dir", folder / "wheels", PACKAGE)
        wheel = next((folder / "wheels").glob("*.whl"))
    pip(python, "install", wheel)
    return python


def build_rust() -> Path:
    """Build the Rust side for release."""
    say("building the Rust side")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "qo", "--example", EXAMPLE]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise Failure("cargo could not build the Rust side")
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / EXAMPLE


def install_redis() -> None:
    """Install the distribution's Redis."""
    say("installing redis-server with apt-get")
    become_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    apt = [*become_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=60"]
    install = [*apt, "install", "-y", "--no-install-recommends", "redis-server"]
    for command in (install, [*apt, "update"], install):
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if shutil.which("redis-server"):
            return
    raise Failure("redis-server is not installed, and apt-get could not install it")


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis that keeps nothing on the disk, and yield its URL."""
    if shutil.which("redis-server") is None:
        install_redis()
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [word for name, value in settings(port, folder).items() for word in (f"--{name}", value)]
    server = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
    try:
        wait_for_redis(port, server)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def settings(port: int, folder: Path) -> Mapping[str, str]:
    """Return the command line of Redis."""
    return {"port": str(port), "dir": str(folder), **REDIS_SETTINGS}


def wait_for_redis(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until Redis answers."""
    deadline = time.monotonic() + 10
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            if connection.recv(16).startswith(b"+PONG"):
                return
        time.sleep(0.02)
    raise Failure("Redis did not start")


if __name__ == "__main__":
    sys.exit("run bench/python/run")
