"""The pool behind the PostgreSQL store: one call, one statement, one commit; errors in our own words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from rowlock.errors import SchemaMissing, StoreError, StoreUnavailable
from rowlock.storage.statements import statements

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

POOL_CONNECTIONS = 4
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
BUSY_SECONDS = 3.0  # for verbs that take milliseconds: after this the socket is half open, or worse
SQL = statements("postgres")

_GONE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a statement on a connection that broke off in the middle of another
)


def without_password(url: str) -> str:
    """The URL as it may be shown: no password, and no parameters, which may hold one."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if parts.password is not None:
        netloc = f"{parts.username}@{netloc.rpartition('@')[2]}"
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


@contextmanager
def own_words(url: str) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError) as error:
        raise SchemaMissing(
            f"{url} has no (or an incomplete) Rowlock schema: run `rowlock migrate` ({message(error)})"
        ) from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise StoreUnavailable(
            f"PostgreSQL at {url} refused the connection: {message(error)}; check DATABASE_URL"
        ) from error
    except _GONE as error:
        reason = message(error) or type(error).__name__
        raise StoreUnavailable(f"PostgreSQL at {url} is not available: {reason}") from error
    except asyncpg.TransactionRollbackError as error:  # a deadlock: nothing is wrong with what was asked
        raise StoreUnavailable(f"PostgreSQL at {url} rolled a transaction back: {message(error)}; try again") from error
    except asyncpg.PostgresError as error:
        raise StoreError(f"PostgreSQL at {url}: {message(error)}") from error


def message(error: BaseException) -> str:
    """What an error says, without the row that it is about: neither here nor, from now on, in a stack that shows it."""
    if isinstance(error, asyncpg.PostgresError):
        error.detail = None
        if not (error.sqlstate or "").startswith("42"):  # about a statement: the server's own advice, no trigger's
            error.hint = None
    return str(error)


class Connections:
    """A few connections, opened when needed, that survive a restart of the server and a pooler in between."""

    def __init__(self, url: str, size: int = POOL_CONNECTIONS) -> None:
        self.dsn = url
        self.url = without_password(url)
        self.size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self.pooled = False
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        async with self._opening:
            if self._pool is not None:
                return
            with own_words(self.url):
                self.pooled = await self._behind_pooler()
                self._pool = await asyncpg.create_pool(
                    self.dsn,
                    min_size=0,
                    max_size=self.size,
                    timeout=CONNECT_SECONDS,
                    command_timeout=STATEMENT_SECONDS,
                    max_inactive_connection_lifetime=0,
                    statement_cache_size=0 if self.pooled else 100,
                    reset=_keep,
                    server_settings={} if self.pooled else {"application_name": "rowlock"},
                )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def direct(self, dsn: str | None = None) -> asyncpg.Connection[asyncpg.Record]:
        """A connection of its own, outside the pool."""
        cached = 0 if self.pooled or dsn is not None else 100
        with own_words(self.url):
            return await asyncpg.connect(dsn or self.dsn, timeout=CONNECT_SECONDS, statement_cache_size=cached)

    async def _behind_pooler(self) -> bool:
        """Whether a pooler such as pgbouncer stands between: it hands out process ids that are not the server's."""
        connection = await asyncpg.connect(self.dsn, timeout=CONNECT_SECONDS, statement_cache_size=0)
        try:
            async with connection.transaction():
                pid: int = await connection.fetchval("SELECT pg_backend_pid()")
            return pid != connection.get_server_pid()
        finally:
            await connection.close(timeout=CONNECT_SECONDS)

    @asynccontextmanager
    async def connection(self, *, transaction: bool = False) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        """A connection for a few statements; behind a pooler always in a transaction, so that they meet one server."""
        if self._pool is None:
            await self.open()
        assert self._pool is not None
        with own_words(self.url):
            async with self._pool.acquire(timeout=CONNECT_SECONDS) as connection:
                if transaction or self.pooled:
                    async with connection.transaction():
                        yield connection
                else:
                    yield connection

    @asynccontextmanager
    async def transaction(self, *, looks: bool = False) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        """A transaction around a block of the caller's, whose own errors keep their meaning."""
        if self._pool is None:
            await self.open()
        assert self._pool is not None
        with own_words(self.url):
            connection = await self._pool.acquire(timeout=CONNECT_SECONDS)
        try:
            transaction = connection.transaction(readonly=looks)
            with own_words(self.url):
                await transaction.start()
            try:
                yield connection
            except BaseException:
                if not connection.is_closed():
                    await transaction.rollback()
                raise
            with own_words(self.url):
                await transaction.commit()
        finally:
            await self._pool.release(connection)

    async def fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        """Run a named statement and return its rows."""
        return await self.run(SQL[name], *args, timeout=_TIMEOUTS.get(name))

    async def run(self, statement: str, *args: Any, timeout: float | None = None) -> list[asyncpg.Record]:
        async with self.connection() as connection:
            try:
                return await connection.fetch(statement, *args, timeout=timeout)
            except TimeoutError:
                connection.terminate()  # it may never answer, not even to a cancel
                if self._pool is not None:
                    await self._pool.expire_connections()  # nor may its neighbours: do not wait for each in turn
                raise

    async def value(self, name: str, *args: Any) -> Any:
        """Run a named statement and return its one value."""
        return (await self.fetch(name, *args))[0][0]


_TIMEOUTS = dict.fromkeys(
    (
        *("claim", "settle", "beat", "held", "glance", "progress", "any_expired", "wake"),
        *("take_call", "end_call", "rest_calls", "hold_subjects", "mark_subjects", "free_subjects"),
    ),
    BUSY_SECONDS,
)


async def _keep(_: Any) -> None:
    """Nothing to reset: no verb leaves session state behind, and a round trip per call would be wasted."""
