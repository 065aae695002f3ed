"""The connection pool of the PostgreSQL store: one call, one statement, one commit; translates the driver's errors."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import asyncpg

from rowlock.errors import SchemaMissing, StatementRefused, StoreConflict, StoreError, StoreUnavailable, ValueRefused
from rowlock.storage.statements import statements

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

POOL_CONNECTIONS = 4
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
HOST_SECONDS = 3.0  # for one of several hosts, which may be off, or accept the connection and not respond
_ROLL_BACK_SECONDS = 2.0
BUSY_SECONDS = 3.0  # for verbs that take milliseconds: after this the socket is probably half open
SQL = statements("postgres")
READ_COMMITTED: Literal["read_committed"] = "read_committed"
"""Level of every statement and transaction: at a higher one, concurrent claims and loads fail as not serializable."""

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
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a statement on a connection that broke during another one
)

_OURS = re.compile(r"\browlock\b")  # server messages may be in any language
_STATEMENT_CLASS = "42"  # SQLSTATE: syntax error or access rule violation
_HOST = re.compile(r"(?P<host>/.*|\[[^]]+\]|[^:/\[]+)(?::(?P<port>[0-9]+))?")
_VALUE_CLASSES = ("22", "23", "54")  # SQLSTATE: data exception, integrity constraint violation, program limit exceeded


def without_password(url: str) -> str:
    """Returns the URL for display: without the password, and without parameters, which can contain one."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if parts.password is not None:
        netloc = f"{parts.username}@{netloc.rpartition('@')[2]}"
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


@contextmanager
def translated_errors(url: str) -> Iterator[None]:
    """Translates the driver's errors into errors of `rowlock.errors`."""
    try:
        yield
    except (asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError) as error:
        if not _OURS.search(str(error)):
            raise _statement_refused(url, error) from error
        raise SchemaMissing(
            f"{url} has no (or an incomplete) Rowlock schema: run `rowlock migrate` ({message(error)})"
        ) from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise StoreUnavailable(
            f"PostgreSQL at {url} refused the connection: {message(error)}; check DATABASE_URL"
        ) from error
    except _GONE as error:
        if isinstance(error, ValueError):  # the driver cannot encode an argument and sent nothing
            raise ValueRefused(f"PostgreSQL at {url} cannot hold a value: {message(error)}") from error
        reason = message(error) or type(error).__name__
        raise StoreUnavailable(f"PostgreSQL at {url} is not available: {reason}") from error
    except asyncpg.TransactionRollbackError as error:  # a deadlock: the statement itself is correct
        raise StoreConflict(f"PostgreSQL at {url} rolled a transaction back: {message(error)}; try again") from error
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "").startswith(_VALUE_CLASSES):
            raise ValueRefused(f"PostgreSQL at {url} refused a value: {message(error)}") from error
        if (error.sqlstate or "").startswith(_STATEMENT_CLASS):
            raise _statement_refused(url, error) from error
        raise StoreError(f"PostgreSQL at {url}: {message(error)}") from error


def _statement_refused(url: str, error: asyncpg.PostgresError) -> StatementRefused:
    advice = "create it, or correct the statement"
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        advice = "GRANT this right to the user of DATABASE_URL"
    return StatementRefused(f"PostgreSQL at {url} refused a statement: {message(error)}; {advice}")


def message(error: BaseException) -> str:
    """Returns an error's text without row data, and strips that data from the error so that stacks omit it too."""
    if isinstance(error, asyncpg.PostgresError):
        error.detail = None
        if not (error.sqlstate or "").startswith("42"):  # class 42: the server's own advice, not a trigger's
            error.hint = None
    return str(error)


# Overrides the role, the database and the URL. A pooler accepts no such settings, so behind one every statement runs in
# a transaction, which sets its level itself.
_SESSION = {"application_name": "rowlock", "default_transaction_isolation": "read committed"}


async def _roll_back(connection: PoolConnectionProxy[asyncpg.Record], transaction: Any) -> None:
    """Rolls back; if that fails, closes the connection, which has the same effect and keeps the first error."""
    try:
        async with asyncio.timeout(_ROLL_BACK_SECONDS):
            await transaction.rollback()
    except Exception:
        connection.terminate()


class Connections:
    """A small pool that opens on demand, survives restarts of the server, and works behind a pooler."""

    def __init__(self, url: str, size: int = POOL_CONNECTIONS) -> None:
        self.dsn = url
        self.url = without_password(url)
        self.size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self.pooled = False
        self.on_read_only: set[Callable[[], None]] = set()
        """Callbacks for when the server has become read-only: leave it for the new primary."""
        self._opening = asyncio.Lock()
        self.closed = False

    async def open(self) -> None:
        self.closed = False
        await self.opened()

    async def opened(self) -> asyncpg.Pool[asyncpg.Record]:
        """Returns the pool, opened on first use; raises StoreUnavailable after close(): no one would close it again."""
        async with self._opening:
            if self._pool is not None:
                return self._pool
            with translated_errors(self.url):
                if not self.closed:
                    self.pooled = await self._behind_pooler()
                if self.closed:  # perhaps during the check above
                    raise StoreUnavailable(f"the connections to {self.url} are closed: open the store before using it")
                self._pool = await asyncpg.create_pool(
                    self.dsn,
                    connect=cast(Any, _to_primary),  # the declared type lists every option of the driver
                    min_size=0,
                    max_size=self.size,
                    timeout=CONNECT_SECONDS,
                    command_timeout=STATEMENT_SECONDS,
                    max_inactive_connection_lifetime=0,
                    statement_cache_size=0 if self.pooled else 100,
                    reset=_keep,
                    server_settings={} if self.pooled else _SESSION,
                )
                return self._pool

    async def close(self) -> None:
        self.closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def direct(self, dsn: str | None = None) -> asyncpg.Connection[asyncpg.Record]:
        """Opens a connection outside the pool, which the caller must close."""
        cached = 0 if self.pooled or dsn is not None else 100
        with translated_errors(self.url):
            return await _to_primary(dsn or self.dsn, timeout=CONNECT_SECONDS, statement_cache_size=cached)

    async def _behind_pooler(self) -> bool:
        """Returns whether a pooler such as pgbouncer is in between: its process ids differ from the server's."""
        connection = await _to_primary(self.dsn, timeout=CONNECT_SECONDS, statement_cache_size=0)
        try:
            async with connection.transaction(isolation=READ_COMMITTED):
                pid: int = await connection.fetchval("SELECT pg_backend_pid()")
            return pid != connection.get_server_pid()
        finally:
            await connection.close(timeout=CONNECT_SECONDS)

    @asynccontextmanager
    async def connection(self, *, transaction: bool = False) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        """Yields a connection for a few statements; behind a pooler in a transaction, to keep them on one server."""
        pool = self._pool or await self.opened()
        with translated_errors(self.url):
            async with pool.acquire(timeout=CONNECT_SECONDS) as connection:
                try:
                    if transaction or self.pooled:
                        async with connection.transaction(isolation=READ_COMMITTED):
                            yield connection
                    else:
                        yield connection
                except asyncpg.ReadOnlySQLTransactionError:
                    await self.leave_read_only()
                    raise

    @asynccontextmanager
    async def transaction(self, *, looks: bool = False) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
        """Yields a connection in a transaction; errors that the block raises pass through unchanged."""
        pool = self._pool or await self.opened()
        with translated_errors(self.url):
            connection = await pool.acquire(timeout=CONNECT_SECONDS)
        try:
            transaction = connection.transaction(isolation=READ_COMMITTED, readonly=looks)
            with translated_errors(self.url):
                await transaction.start()
            try:
                yield connection
            except BaseException as error:
                if not looks and is_read_only(error):
                    await self.leave_read_only()
                if not connection.is_closed():
                    await _roll_back(connection, transaction)
                raise
            with translated_errors(self.url):
                await transaction.commit()
        finally:
            await pool.release(connection)

    async def leave_read_only(self) -> None:
        """Closes every connection to a server that became read-only, so that the next ones look for the primary.

        A primary that was demoted, or made read-only by hand, stays up, and the connections to it would stay too.
        """
        if self._pool is not None:
            await self._pool.expire_connections()
        for leave in list(self.on_read_only):
            leave()

    async def fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        """Runs a named statement and returns its rows."""
        return await self.run(SQL[name], *args, timeout=_TIMEOUTS.get(name))

    async def run(self, statement: str, *args: Any, timeout: float | None = None) -> list[asyncpg.Record]:
        async with self.connection() as connection:
            try:
                return await connection.fetch(statement, *args, timeout=timeout)
            except TimeoutError:
                connection.terminate()  # the server may never answer, not even a cancel
                if self._pool is not None:
                    await self._pool.expire_connections()  # the others may be dead, too: do not wait for each in turn
                raise

    async def value(self, name: str, *args: Any) -> Any:
        """Runs a named statement and returns its one value."""
        return (await self.fetch(name, *args))[0][0]


_TIMEOUTS = dict.fromkeys(
    (
        *("claim", "settle", "beat", "held", "shortest_lease", "peek", "newest", "progress", "any_expired", "wake"),
        *("take_call", "end_call", "rest_calls", "hold_subjects", "mark_subjects", "free_subjects"),
    ),
    BUSY_SECONDS,
)


async def _to_primary(
    dsn: str, *, timeout: float = CONNECT_SECONDS, **options: Any
) -> asyncpg.Connection[asyncpg.Record]:
    """Connects to the first host that accepts writes or, if there is none, to one that accepts reads.

    If the URL or PGTARGETSESSIONATTRS sets target_session_attrs, follows that. The driver's own search stops at a host
    that accepts the connection and does not respond, so it is given one host at a time.
    """
    hosts = _hosts(dsn)
    last: Exception | None = None
    loop = asyncio.get_running_loop()
    until, share = loop.time() + timeout, min(HOST_SECONDS, timeout / len(hosts))
    for wanted in _wanted(dsn):
        others: list[dict[str, Any]] = []  # hosts that answer, but do not match `wanted`
        for place, host in enumerate(hosts, 1):
            seconds = until - loop.time()
            if place < len(hosts) or others:  # another host to try remains
                seconds = min(share, seconds)
            try:
                connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
                    dsn, timeout=max(seconds, 0.0), target_session_attrs=wanted, **host, **options
                )
                return connection
            except asyncpg.TargetServerAttributeNotMatched as error:
                others.append(host)
                last = error
            except (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError) as error:
                last = error
        hosts = others
    assert last is not None
    raise last


def _wanted(dsn: str) -> tuple[Any, ...]:
    """Returns the values of target_session_attrs to try, in order."""
    named = parse_qs(urlsplit(dsn).query).get("target_session_attrs", [os.environ.get("PGTARGETSESSIONATTRS")])[-1]
    if named is None:
        return "read-write", "any"
    return ("standby", "any") if named == "prefer-standby" else (named,)


def _hosts(dsn: str) -> list[dict[str, Any]]:
    """Returns driver arguments for each host of the URL or PGHOST; a single host is left to the driver."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    in_netloc = parts.netloc.rpartition("@")[2]
    named = (in_netloc or query.get("host", [os.environ.get("PGHOST", "")])[-1]).split(",")
    found = [_HOST.fullmatch(one) for one in named]
    if len(named) < 2 or not all(found):
        return [{}]
    given = "" if in_netloc else query.get("port", [""])[-1]
    ports = (given or os.environ.get("PGPORT") or "5432").split(",")
    return [
        {"host": unquote(one["host"]).strip("[]"), "port": int(one["port"] or ports[place % len(ports)])}
        for place, one in enumerate(found)
        if one is not None
    ]


def is_read_only(error: BaseException | None) -> bool:
    """Returns whether an error, or a cause of it, is that the server accepts no writes."""
    while error is not None:
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return True
        error = error.__cause__
    return False


async def _keep(_: Any) -> None:
    """Resets nothing: no verb leaves session state behind, and a reset would cost a round trip per call."""
