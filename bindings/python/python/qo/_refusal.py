"""Errors of the SQL functions, as exceptions of qo."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ._errors import Invalid, QoError, Unavailable, from_told

if TYPE_CHECKING:
    from collections.abc import Iterator

# The functions raise errors with codes of their own.
_OWN = {
    "QOINV": "invalid",
    "QONTF": "not_found",
    "QOCFL": "conflict",
    "QOLIM": "limit_reached",
    "QOFEN": "fenced",
    "QOINT": "internal",
}
# PATH: "VALUE": RULE. The value is as JSON writes it; behind one that was cut stands its length.
_MISTAKE = re.compile(r'(?P<path>.+?): (?P<value>"(?:[^"\\]|\\.)*"[^:]*): (?P<rule>.*)', re.DOTALL)


def _sources(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it wraps: SQLAlchemy keeps the driver's error in `orig`, Django in `__cause__`."""
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        source = pending.pop(0)
        if isinstance(source, BaseException) and id(source) not in seen:
            seen.add(id(source))
            yield source
            pending += [getattr(source, "orig", None), source.__cause__]


def _said(error: BaseException) -> tuple[str, str] | None:
    """Return the SQLSTATE and the message of the server; None if the server said nothing."""
    code: str | None = None
    text = ""
    for source in _sources(error):
        told = getattr(source, "sqlstate", None) or getattr(source, "pgcode", None)
        if not isinstance(told, str):
            continue
        if code is None:
            code, text = told, str(source)
        # psycopg has the server's own words in `diag`, asyncpg in `message`. What wraps them may add to the text.
        message = getattr(getattr(source, "diag", None), "message_primary", None) or getattr(source, "message", None)
        if isinstance(message, str):
            return code, message
    return None if code is None else (code, text)


def refused(error: BaseException) -> QoError | None:
    """Turn the error of a call of `submit_many` into an exception of qo.

    None if the error is not about the call: a lost connection, a transaction that had failed before or that lost a
    race. Such an error stays the driver's own, because the caller's code knows it.
    """
    said = _said(error)
    if said is None:
        return None
    code, message = said
    if code in _OWN:
        mistake = _MISTAKE.fullmatch(message) if code == "QOINV" else None
        return from_told({"kind": _OWN[code], "message": message, **(mistake.groupdict() if mistake else {})})
    if code == "42501":
        hint = "the owner of the schema can allow it: SELECT SCHEMA.allow('ROLE', 'submit')"
        return Invalid(f"{message}: {hint}")
    if code in ("3F000", "42883", "42P01"):
        hint = "is the schema in this database, and of this release? `qo migrate up` makes it so"
        return Unavailable(f"{message}: {hint}")
    if code in ("22021", "22P05"):
        # PostgreSQL holds no NUL in a text.
        rule = f"must be a text that PostgreSQL can hold: {message}"
        return Invalid(f"payload: {rule}", path="payload", rule=rule)
    return None
