"""Fresh namespaces on every store. `make test` starts the servers."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import qo
from qo._call import answer_sync

STORES = ["memory", "file", "postgres", "s3"]


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


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


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
