"""Jobs in the caller's own transaction on PostgreSQL: they are there when it commits, and never were if it does not."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._driver import AsyncConnection, Driver, SyncConnection, driver_of, is_async
from ._errors import Invalid, QoError, of_only_job
from ._options import milliseconds
from ._refusal import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from ._client import Client
    from ._options import Length

__all__ = ["AsyncConnection", "SyncConnection", "is_async", "schema_of", "submit_in"]

T = TypeVar("T")
# What became of a job, in the form of the store's own answer to `submit`.
Outcome = dict[str, Any]

_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_DEFAULT_SCHEMA = "qo"
# Beyond every date that a job may have.
_LONGEST = 10**15

# `{}` is the place of the statement's one value.
_JOBS = "CAST(CAST({} AS text) AS jsonb)"
# Delays count from the server's time, not from this machine's.
_DELAYED = (
    "(SELECT jsonb_agg(CASE WHEN j.job->>'delay' IS NULL THEN j.job ELSE (j.job - 'delay') || jsonb_build_object("
    "'run_at', CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint) + CAST(j.job->>'delay' AS bigint)) "
    "END ORDER BY j.place) FROM jsonb_array_elements(JOBS) WITH ORDINALITY AS j (job, place))"
).replace("JOBS", _JOBS)
_SUBMIT = (
    "SELECT CAST(json_agg(json_build_object('outcome', s.outcome, 'job', s.job, 'error', s.error) ORDER BY s.place) "
    "AS text) FROM SCHEMA.submit_many(JOBS) AS s"
)
_SUBMIT_TEXTS = "SELECT CAST(SCHEMA.api_submit(JOBS) AS text)"
_MAY_SUBMIT_TEXTS = (
    "SELECT CAST(coalesce(has_function_privilege(to_regprocedure(CAST({} AS text)), 'execute'), false) AS text)"
)


def schema_of(url: str) -> str:
    """Return the schema that a store's URL names. `Invalid` if the store is not on PostgreSQL.

    >>> schema_of("postgres://shop@db/shop?schema=jobs&connect_timeout=3")
    'jobs'
    """
    kind, _, rest = url.partition("://")
    if kind not in ("postgres", "postgresql"):
        rule = "must be postgres://…: jobs become part of a transaction only in the database that has them"
        raise Invalid.of("store", f"{url.partition(':')[0]}:…", rule)
    pairs = (pair.partition("=") for pair in rest.rpartition("?")[2].split("&")) if "?" in rest else ()
    schema = _DEFAULT_SCHEMA
    for name, _, value in pairs:
        schema = value if name == "schema" else schema
    if not _SCHEMA.fullmatch(schema):
        raise Invalid.of("schema", schema, "must match [a-z_][a-z0-9_]{0,62} and not begin with pg_")
    return schema


@overload
def submit_in(
    connection: AsyncConnection,
    client: Client,
    jobs: Sequence[dict[str, Any]],
    delays: Sequence[Length | None],
    read: Callable[[list[Outcome]], T],
) -> Coroutine[Any, Any, T]: ...
@overload
def submit_in(
    connection: SyncConnection | str,
    client: Client,
    jobs: Sequence[dict[str, Any]],
    delays: Sequence[Length | None],
    read: Callable[[list[Outcome]], T],
) -> T: ...


def submit_in(
    connection: AsyncConnection | SyncConnection | str,
    client: Client,
    jobs: Sequence[dict[str, Any]],
    delays: Sequence[Length | None],
    read: Callable[[list[Outcome]], T],
) -> T | Coroutine[Any, Any, T]:
    """Submit jobs in the transaction that is open on a connection, and return what `read` makes of the outcomes.

    `jobs` are described as the store takes them, and outcomes have the form of its answer to `submit`. With an async
    connection the call returns an awaitable. The schema is that of the client's URL.

    What an error leaves of the transaction:

    - An outcome that is an error (`limit_reached`, `conflict`) leaves it as it was: it can go on and commit.
    - An exception of qo that the server raised, such as `Invalid`, means that the server has given the transaction up:
      roll it back, or back to a savepoint.
    - Any other error of the server or the connection (40001 at REPEATABLE READ, a connection that is lost) is raised
      as the driver's own exception.

    The connection's role needs the right `submit` (``SELECT qo.allow('ROLE', 'submit')``). A job with an idempotency
    key is stored byte for byte as `submit` stores it if the role has the right `work`, too. Without it PostgreSQL
    writes the payload, with other spaces: a later `submit` with the same idempotency key is then a `Conflict`, a later
    `submit_in` is not.
    """
    submit_at_once: Callable[..., list[Outcome]] | None = getattr(client.namespace, "submit_at_once", None)
    if submit_at_once is not None:
        return _at_once(connection, partial(submit_at_once, jobs, delays), read)
    call = _Call(f'"{schema_of(client.url)}"', _with_delays(jobs, delays))
    driver = driver_of(connection)
    if driver.is_async:
        return _submit_async(driver, call, read)
    return _submit(driver, call, read)


def _at_once(
    connection: object, submit: Callable[[], list[Outcome]], read: Callable[[list[Outcome]], T]
) -> T | Coroutine[Any, Any, T]:
    """Submit without the transaction: the store of a test is in memory."""

    async def submit_async() -> T:
        return read(submit())

    return submit_async() if is_async(connection) else read(submit())


def _with_delays(jobs: Sequence[dict[str, Any]], delays: Sequence[Length | None]) -> list[dict[str, Any]]:
    lengths = [None if delay is None else min(milliseconds("delay", delay), _LONGEST) for delay in delays]
    pairs = zip(jobs, lengths, strict=True)
    return [job if length is None else {**job, "delay": length} for job, length in pairs]


class _Call:
    """The statements of one call, each with its value, and how the answer is read."""

    def __init__(self, schema: str, jobs: list[dict[str, Any]]) -> None:
        self._schema = schema
        self._jobs = jobs
        self.is_only = len(jobs) == 1
        # Payloads are compared as texts when a key is used again.
        self.must_ask = any("idempotency_key" in job for job in jobs)

    def may_send_texts(self) -> tuple[str, str]:
        """Ask whether the role may call the function that takes payloads as texts."""
        return _MAY_SUBMIT_TEXTS, f"{self._schema}.api_submit(jsonb)"

    def submit(self, *, as_texts: bool) -> tuple[str, str]:
        """Submit the jobs."""
        is_delayed = any("delay" in job for job in self._jobs)
        query = (_SUBMIT_TEXTS if as_texts else _SUBMIT).replace("JOBS", _DELAYED if is_delayed else _JOBS)
        value = json.dumps(self._jobs) if as_texts else f"[{','.join(map(_with_payload, self._jobs))}]"
        return query.replace("SCHEMA", self._schema), value

    def outcomes(self, answer: str | None, *, as_texts: bool) -> list[Outcome]:
        """Read the answer."""
        found: list[dict[str, Any]] = json.loads(answer or "[]")
        return found if as_texts else [_outcome(**row) for row in found]


def _with_payload(job: dict[str, Any]) -> str:
    """Write a job with its payload as a value: in a described job it is a text."""
    rest = json.dumps({name: value for name, value in job.items() if name != "payload"})
    return f'{rest[:-1]}, "payload": {job["payload"]}}}'


def _outcome(outcome: str, job: str | None, error: str | None) -> Outcome:
    if error is not None:
        return {"Err": {"kind": outcome, "message": error}}
    return {"Ok": {"outcome": outcome} if job is None else {"outcome": outcome, "job": job}}


@contextmanager
def _refusals(*, is_only: bool) -> Generator[None, None, None]:
    try:
        yield
    except QoError:
        raise
    except Exception as error:
        refusal = refused(error)
        if refusal is None:
            raise
        raise (of_only_job(refusal) if is_only else refusal) from error


def _submit(driver: Driver, call: _Call, read: Callable[[list[Outcome]], T]) -> T:
    with _refusals(is_only=call.is_only):
        as_texts = call.must_ask and driver.ask(*call.may_send_texts()) == "true"
        answer = driver.ask(*call.submit(as_texts=as_texts))
    return read(call.outcomes(answer, as_texts=as_texts))


async def _submit_async(driver: Driver, call: _Call, read: Callable[[list[Outcome]], T]) -> T:
    with _refusals(is_only=call.is_only):
        as_texts = call.must_ask and await driver.ask(*call.may_send_texts()) == "true"
        answer = await driver.ask(*call.submit(as_texts=as_texts))
    return read(call.outcomes(answer, as_texts=as_texts))
