"""Fresh namespaces on every store. `make test` starts the servers."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import qo
from qo._call import answer_sync

# `http` is a server in front of a directory.
STORES = ["memory", "file", "postgres", "s3", "http"]


def url_of(store: str, folder: Path) -> str:
    """The URL of a namespace that nothing has used."""
    name = f"python_{uuid.uuid4().hex[:12]}"
    if store == "memory":
        return "memory:"
    if store == "file":
        return f"file:{folder / name}"
    variable = {"postgres": "QO_TEST_POSTGRES", "s3": "QO_TEST_S3"}[store]
    server = os.environ.get(variable)
    assert server, f"{variable} must be the URL of a server; `make test` starts it"
    if store == "s3":
        return f"s3://qo-test/{name}?endpoint={server}"
    url = f"{server}{'&' if '?' in server else '?'}schema={name}"
    answer_sync(qo.Client(url).connection.migrate())
    return url


@contextmanager
def namespace(store: str, folder: Path) -> Iterator[str]:
    """The URL of a namespace that nothing has used, and the server that it may need."""
    if store != "http":
        yield url_of(store, folder)
        return
    command = [sys.executable, "-m", "qo", "serve", "--listen", "127.0.0.1:0", "--store", url_of("file", folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as server:
        try:
            assert server.stdout is not None
            # "serving file:… at http://127.0.0.1:…", or nothing if it could not start.
            said = server.stdout.readline().split()
            assert said, "qo serve has not started"
            yield said[-1]
        finally:
            server.terminate()


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with namespace(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def here(tmp_path: Path) -> str:
    """A namespace that several processes share."""
    return url_of("file", tmp_path)


@asynccontextmanager
async def running(app: qo.App, **options: object) -> AsyncIterator[qo.App]:
    """A worker of an app, drained at the end."""
    worker = asyncio.ensure_future(app.run(until_signal=False, **options))
    try:
        yield app
    finally:
        app.shutdown()
        await asyncio.wait_for(worker, 30)


async def until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition."""
    for _ in range(1500):
        if await is_so():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"{what}: not within 30 s")
