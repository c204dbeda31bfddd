"""What is done with the PostgreSQL server itself.

server.py create SCHEMA    makes a schema, and drops the one of that name
server.py settle SCHEMA    vacuums and analyzes its tables, and checkpoints: not while a drain is timed
server.py drop SCHEMA      drops it
server.py facts            prints its version and settings as JSON
"""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import median

import psycopg
from psycopg.sql import SQL, Identifier

COMMITS = 50


def settle(connection: psycopg.Connection, schema: str) -> None:
    """Let the server do now what it would do in the background later."""
    query = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'"
    for (table,) in connection.execute(query, [schema]).fetchall():
        connection.execute(SQL("VACUUM (ANALYZE) {}.{}").format(Identifier(schema), Identifier(table)))
    connection.execute("CHECKPOINT")


def facts(connection: psycopg.Connection) -> dict[str, object]:
    """Say what the server is, and how long a small commit takes."""
    names = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_connections")
    told: dict[str, object] = {}
    for name in names:
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        told[name] = row[0] if row else None
    connection.execute("CREATE TABLE IF NOT EXISTS public.qo_bench_commit (number int)")
    times = []
    for number in range(COMMITS):
        began = time.perf_counter()
        connection.execute("INSERT INTO public.qo_bench_commit VALUES (%s)", [number])
        times.append(time.perf_counter() - began)
    connection.execute("DROP TABLE public.qo_bench_commit")
    return told | {"commit_ms": 1000 * median(times)}


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    with psycopg.connect(os.environ["BENCH_SERVER"], autocommit=True) as connection:
        match arguments:
            case ["create" | "drop" as what, schema]:
                connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(schema)))
                if what == "create":
                    connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
            case ["settle", schema]:
                settle(connection, schema)
            case ["facts"]:
                print(json.dumps(facts(connection)))
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
