"""Transactions on PostgreSQL, opened in every way that a caller of `submit_in` has.

Each way is a context manager: it commits at its end, and rolls back if an exception ends it.
"""

from contextlib import asynccontextmanager, contextmanager
from importlib import import_module

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool


def server(url: str) -> str:
    """The URL as a driver takes it: without the schema."""
    return url.partition("?")[0]


def of_sqlalchemy(url: str, driver: str) -> str:
    return server(url).replace("postgres://", f"postgresql+{driver}://")


@contextmanager
def engine(url: str):
    made = sqlalchemy.create_engine(of_sqlalchemy(url, "psycopg"), poolclass=NullPool)
    try:
        yield made
    finally:
        made.dispose()


@asynccontextmanager
async def async_engine(url: str, driver: str):
    made = create_async_engine(of_sqlalchemy(url, driver), poolclass=NullPool)
    try:
        yield made
    finally:
        await made.dispose()


@contextmanager
def psycopg_connection(url: str):
    with psycopg.connect(server(url)) as connection:
        yield connection


@contextmanager
def psycopg_cursor(url: str):
    with psycopg.connect(server(url)) as connection, connection.cursor() as cursor:
        yield cursor


@contextmanager
def sqlalchemy_connection(url: str):
    with engine(url) as made, made.begin() as connection:
        yield connection


@contextmanager
def sqlalchemy_session(url: str):
    with engine(url) as made, Session(made) as session, session.begin():
        yield session


@contextmanager
def sqlalchemy_scoped_session(url: str):
    with engine(url) as made:
        session = scoped_session(sessionmaker(made))
        with session.begin():
            yield session
        session.remove()


def django_database(url: str) -> None:
    """Let Django of this process have the server as its default database."""
    conf = import_module("django.conf")
    if not conf.settings.configured:
        info = psycopg.conninfo.conninfo_to_dict(server(url))
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": info["dbname"],
            "USER": info["user"],
            "HOST": info["host"],
            "PORT": info["port"],
        }
        conf.settings.configure(DATABASES={"default": database})
        import_module("django").setup()


@contextmanager
def django_connection(url: str):
    django_database(url)
    db = import_module("django.db")
    try:
        with db.transaction.atomic():
            yield db.connection
    finally:
        db.connections.close_all()


@contextmanager
def django_alias(url: str):
    with django_connection(url):
        yield "default"


@asynccontextmanager
async def psycopg_async_connection(url: str):
    async with await psycopg.AsyncConnection.connect(server(url)) as connection:
        yield connection


@asynccontextmanager
async def psycopg_async_cursor(url: str):
    async with await psycopg.AsyncConnection.connect(server(url)) as connection, connection.cursor() as cursor:
        yield cursor


@asynccontextmanager
async def asyncpg_connection(url: str):
    connection = await asyncpg.connect(server(url))
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str):
    async with (
        asyncpg.create_pool(server(url), min_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


def sqlalchemy_async_connection(driver: str):
    @asynccontextmanager
    async def way(url: str):
        async with async_engine(url, driver) as made, made.begin() as connection:
            yield connection

    return way


def sqlalchemy_async_session(driver: str):
    @asynccontextmanager
    async def way(url: str):
        async with async_engine(url, driver) as made, AsyncSession(made) as session, session.begin():
            yield session

    return way


@asynccontextmanager
async def sqlalchemy_async_scoped_session(url: str):
    async with async_engine(url, "psycopg") as made:
        session = async_scoped_session(async_sessionmaker(made), scopefunc=lambda: 0)
        async with session.begin():
            yield session
        await session.remove()


SYNC = {
    "psycopg connection": psycopg_connection,
    "psycopg cursor": psycopg_cursor,
    "sqlalchemy connection": sqlalchemy_connection,
    "sqlalchemy session": sqlalchemy_session,
    "sqlalchemy scoped session": sqlalchemy_scoped_session,
    "django connection": django_connection,
    "django alias": django_alias,
}
ASYNC = {
    "psycopg connection": psycopg_async_connection,
    "psycopg cursor": psycopg_async_cursor,
    "asyncpg connection": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "sqlalchemy connection on psycopg": sqlalchemy_async_connection("psycopg"),
    "sqlalchemy connection on asyncpg": sqlalchemy_async_connection("asyncpg"),
    "sqlalchemy session on psycopg": sqlalchemy_async_session("psycopg"),
    "sqlalchemy session on asyncpg": sqlalchemy_async_session("asyncpg"),
    "sqlalchemy scoped session": sqlalchemy_async_scoped_session,
}
