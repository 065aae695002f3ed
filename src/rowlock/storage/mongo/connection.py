"""The client behind the MongoDB store: what every statement is done with, and errors in our own words."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)
from pymongo.read_concern import ReadConcern

from rowlock.clock import Clock
from rowlock.errors import SchemaMissing, SettingsError, StoreError, StoreUnavailable
from rowlock.storage.mongo.moments import floor

T = TypeVar("T")
Document = dict[str, Any]
Session = AsyncClientSession
Database = AsyncDatabase[Document]
Collection = AsyncCollection[Document]

DATABASE = "rowlock"
MIGRATIONS = "rowlock_migrations"
POOL_CONNECTIONS = 4
SELECT_SECONDS = 3.0  # to find a primary; an election may take longer, and is then waited for by asking again
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
BUSY_SECONDS = 3.0  # for verbs that take milliseconds: after this the socket is half open, or worse
ROLL_BACK_SECONDS = 2.0
REFUSAL_SECONDS = 0.05
TRIES_AT_MOST = 40
"""How often a transaction is tried that others get in the way of."""
TRIES_OF_A_KEY = 5
NAP_SECONDS = (0.002, 0.25)
"""The first and the longest pause between two tries; the real one is up to this long, so that two do not keep step."""

OPTIONS: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)
DURABLE = WriteConcern(w="majority", j=True)
MAJORITY = ReadConcern("majority")
SNAPSHOT = ReadConcern("snapshot")

_TRANSIENT = "TransientTransactionError"
_UNKNOWN = "UnknownTransactionCommitResult"
_DENIED = frozenset({13, 18})
_UNAVAILABLE_CODES = frozenset({50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
_FULL_CODE, _FULL_WORDS = 14031, "No space left on device"  # some writes say it in words alone
DUPLICATE = 11000
PATIENCE_SECONDS = 45.0  # shorter than a statement may take


class TransactionConflict(StoreUnavailable, PyMongoError):
    """Others were in the way of a transaction: it was rolled back, and can be tried again whole.

    One of the driver's too, so that a caller's own `with_transaction` does try again.
    """

    def has_error_label(self, label: str) -> bool:
        return label == _TRANSIENT


def database_of(url: str) -> str:
    """The database that a URL names."""
    return unquote(urlsplit(url).path.lstrip("/")) or DATABASE


def without_password(url: str) -> str:
    """The URL as it may be shown: no password, and no parameters, which may hold one."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        netloc = f"{parts.username or ''}@{netloc.rpartition('@')[2]}"
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def in_own_words(error: PyMongoError | BSONError, url: str) -> StoreError:
    """The error of our own tree that says the same."""
    said = _said(error)
    codes = _codes(error)
    if isinstance(error, TransactionConflict):
        return error
    if isinstance(error, PyMongoError) and error.has_error_label(_TRANSIENT):
        return TransactionConflict(f"MongoDB at {url} rolled a transaction back: {said}; try it again")
    if codes & _DENIED:
        return StoreUnavailable(f"MongoDB at {url} refused the connection: {said}; check DATABASE_URL")
    if isinstance(error, ConnectionFailure | ExecutionTimeout | AutoReconnect) or codes & _UNAVAILABLE_CODES:
        return StoreUnavailable(f"MongoDB at {url} is not available: {said}")
    if _FULL_CODE in codes or _FULL_WORDS in said:
        return StoreUnavailable(f"the disk of MongoDB at {url} is full: {said}; free some of it and try again")
    if isinstance(error, ConfigurationError):
        return StoreUnavailable(f"MongoDB at {url} cannot be reached as DATABASE_URL says: {said}")
    return StoreError(f"MongoDB at {url}: {said}")


def _said(error: Exception) -> str:
    """What an error says, without the documents that it is about, nor the topology that follows the reason."""
    if isinstance(error, PyMongoError) and _is_duplicate(error):
        return "this id or key is there already"
    first = next(iter(_write_errors(error)), {})
    text = str(first.get("errmsg") or error).partition(", full error:")[0].partition(", Timeout:")[0]
    return text[:500] or type(error).__name__


def _codes(error: Exception) -> set[int]:
    """MongoDB's numbers for what went wrong; of a batch, those of its writes."""
    if isinstance(error, BulkWriteError):
        return {one["code"] for one in _write_errors(error)}
    return {error.code} if isinstance(error, OperationFailure) and error.code is not None else set()


def _write_errors(error: Exception) -> list[Document]:
    """What a batch says of its single writes, and then of how they were kept."""
    details = (error.details or {}) if isinstance(error, BulkWriteError) else {}
    return [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]


@contextmanager
def own_words(url: str) -> Iterator[None]:
    """Let no error of the driver's out of the block unexplained."""
    try:
        yield
    except StoreError:
        raise
    except TimeoutError as error:
        raise StoreUnavailable(f"MongoDB at {url} is not available: it did not answer in time") from error
    except (PyMongoError, BSONError) as error:
        raise in_own_words(error, url) from error


class Scope:
    """Where a piece of work happens: the database, the session of its transaction if it has one, and the time."""

    __slots__ = ("clock", "db", "session")

    def __init__(self, db: Database, session: Session | None, clock: Clock) -> None:
        self.db = db
        self.session = session
        self.clock = clock

    def __getitem__(self, collection: str) -> Collection:
        return self.db[collection]

    async def now(self) -> datetime:
        """The time of the clock, or else the server's; that costs a round trip, which "$$NOW" does not."""
        given = self.clock.now()
        if given is not None:
            return floor(given)
        now: datetime = (await self.db.command("hello", codec_options=OPTIONS))["localTime"]
        return now


Work = Callable[[Scope], Awaitable[T]]


class Pool:
    """A client and how many use it: one that is given up is closed when the last of them is done."""

    __slots__ = ("client", "given_up", "users")

    def __init__(self, client: AsyncMongoClient[Document]) -> None:
        self.client = client
        self.users = 0
        self.given_up = False


class Link:
    """The client of one store object, made when needed, and made anew when its connections have gone dead."""

    def __init__(self, url: str, clock: Clock, size: int = POOL_CONNECTIONS) -> None:
        self.dsn = url
        self.url = without_password(url)
        self.database = database_of(url)
        self._clock = clock
        self._size = size
        self._pool: Pool | None = None
        self._closing = set[asyncio.Task[None]]()
        self._replicated: bool | None = None
        self._migrated = False
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        async with self._opening:
            if self._replicated is None:
                async with self._in_time() as scope:
                    self._replicated = is_replicated(await scope.db.client.admin.command("hello"))

    async def close(self) -> None:
        pool, known = self._pool, self._replicated is not None
        self._pool = self._replicated = None
        self._migrated = False
        if pool is not None:
            if not known:
                # The driver is still trying to connect, and leaves its socket open when stopped in the middle of that.
                await asyncio.sleep(REFUSAL_SECONDS)
            await pool.client.close()
        await asyncio.gather(*self._closing)

    @contextmanager
    def _used(self) -> Iterator[Pool]:
        """The client that there is now, which stays open until the end of the block."""
        if self._pool is None:
            self._pool = Pool(self.new_client())
        pool = self._pool
        pool.users += 1
        try:
            yield pool
        finally:
            pool.users -= 1
            if pool.given_up and pool.users == 0:
                closing = asyncio.create_task(_close(pool.client))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    @asynccontextmanager
    async def _in_time(self, seconds: float = STATEMENT_SECONDS) -> AsyncIterator[Scope]:
        """Where statements are done that answer in time; if they do not, nobody gets those connections any more.

        A connection that is half open takes what is sent and never answers, and the rest of its pool is no better. The
        driver finds out later, by itself, and its own timeouts may swallow a cancellation on Python 3.11.
        """
        with own_words(self.url), self._used() as pool:
            try:
                async with asyncio.timeout(seconds):
                    yield self.scope(pool.client)
            except TimeoutError:
                pool.given_up = True
                if self._pool is pool:
                    self._pool = None
                raise

    def new_client(self) -> AsyncMongoClient[Document]:
        given = urlsplit(self.dsn).query.lower()
        options: dict[str, Any] = {
            "maxPoolSize": self._size,
            "serverSelectionTimeoutMS": int(SELECT_SECONDS * 1000),
            "connectTimeoutMS": int(CONNECT_SECONDS * 1000),
            "appname": "rowlock",
        }
        chosen = {name: value for name, value in options.items() if f"{name.lower()}=" not in given}
        try:
            return AsyncMongoClient(self.dsn, retryWrites=True, retryReads=True, tz_aware=True, tzinfo=UTC, **chosen)
        except (InvalidURI, ConfigurationError, ValueError) as error:
            said = _said(error).replace(urlsplit(self.dsn).password or "\0", "…")
            raise SettingsError(f"DATABASE_URL {self.url} is not one that MongoDB takes: {said}") from None

    async def replicated(self) -> bool:
        """Whether there is a replica set, so that there are transactions and change streams."""
        if self._replicated is None:
            await self.open()
        return bool(self._replicated)

    async def ready(self) -> bool:
        """The same, once there is a schema: MongoDB itself makes collections without indexes of what is not there."""
        if not self._migrated:
            await self.replicated()
            async with self._in_time() as scope:
                require_migrated(await scope[MIGRATIONS].find_one({}, {"_id": 1}), self.url)
            self._migrated = True
        return await self.replicated()

    async def bare(self, work: Work[T]) -> T:
        """Do the work statement by statement, on a database that may have no schema."""
        await self.replicated()
        async with self._in_time() as scope:
            return await work(scope)

    async def plain(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Do the work statement by statement."""
        await self.ready()
        async with self._in_time(seconds) as scope:
            return await work(scope)

    async def atomic(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Do the work in a transaction, again as often as others get in its way; without a replica set, plainly.

        The work may run several times: it must change nothing but the store.
        """
        replicated = await self.ready()
        async with self._in_time(seconds) as scope:
            for attempt in range(TRIES_AT_MOST):
                try:
                    return await (self._in_transaction(scope, work) if replicated else work(scope))
                except PyMongoError as error:
                    if not worth_another_try(error, attempt):
                        raise
                await nap(attempt)
        raise AssertionError("the last try raises")

    async def _in_transaction(self, scope: Scope, work: Work[T]) -> T:
        async with _begun(scope.db.client) as session:
            result = await work(self.scope(scope.db.client, session))
            await commit(session)
            return result

    def scope(self, client: AsyncMongoClient[Document], session: Session | None = None) -> Scope:
        return Scope(database(client, self.database), session, self._clock)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A session in a transaction, which is rolled back at the end of the block unless it was committed."""
        with self._used() as pool:
            async with _begun(pool.client) as session:
                yield session


@asynccontextmanager
async def _begun(client: AsyncMongoClient[Document]) -> AsyncIterator[Session]:
    async with client.start_session() as session:
        await session.start_transaction(read_concern=SNAPSHOT, write_concern=DURABLE)
        try:
            yield session
        finally:
            # Shielded: who is cancelled twice must not leave locks behind.
            await asyncio.shield(_roll_back(session))


async def _close(client: AsyncMongoClient[Document]) -> None:
    """Close one whose connections may be dead, which it would tell the server goodbye by."""
    with suppress(TimeoutError, PyMongoError):
        async with asyncio.timeout(ROLL_BACK_SECONDS):
            await client.close()


def require_migrated(migration: Document | None, url: str) -> None:
    if migration is None:
        raise SchemaMissing(f"{url} has no Rowlock schema: run `rowlock migrate`")


def is_replicated(hello: Document) -> bool:
    """Whether this server has transactions: it is a member of a replica set, or the door to several."""
    return "setName" in hello or hello.get("msg") == "isdbgrid"


def database(client: Any, name: str) -> Any:
    """The database, with what every statement on it is done with; of an asynchronous client or a synchronous one."""
    return client.get_database(
        name,
        codec_options=OPTIONS,
        read_preference=ReadPreference.PRIMARY,
        write_concern=DURABLE,
        read_concern=MAJORITY,
    )


async def commit(session: Session) -> None:
    """Commit, and ask again while the answer is lost: to commit twice is to commit once."""
    for attempt in range(TRIES_AT_MOST):
        try:
            await session.commit_transaction()
            return
        except PyMongoError as error:
            if attempt + 1 == TRIES_AT_MOST or not error.has_error_label(_UNKNOWN):
                raise
        await nap(attempt)


async def _roll_back(session: Session) -> None:
    """End a transaction that was not committed; the server ends by itself what it cannot be told about."""
    if session.in_transaction:
        with suppress(TimeoutError):
            async with asyncio.timeout(ROLL_BACK_SECONDS):
                await session.abort_transaction()


async def patiently(scope: Scope, work: Work[T]) -> T:
    """Do the work; where it is the first of its transaction and others are in its way, begin that anew after them."""
    session = scope.session
    first = is_new(scope)
    clock = asyncio.get_running_loop()
    begun = clock.time()
    attempt = 0
    while True:
        try:
            return await work(scope)
        except PyMongoError as error:
            late = clock.time() - begun > PATIENCE_SECONDS
            if session is None or not first or late or not worth_another_try(error, min(attempt, TRIES_AT_MOST - 2)):
                raise
        await session.abort_transaction()
        await nap(attempt)
        await session.start_transaction(read_concern=SNAPSHOT, write_concern=DURABLE)
        attempt += 1


def is_new(scope: Scope) -> bool:
    """Whether nothing was done in the transaction yet."""
    return scope.session is None or scope.session.operation_time is None


async def nap(attempt: int) -> None:
    first, longest = NAP_SECONDS
    await asyncio.sleep(random.uniform(0, min(longest, first * 2**attempt)))  # noqa: S311 - not a secret


def worth_another_try(error: PyMongoError, attempt: int) -> bool:
    """Whether a transaction that ended like this, after so many others, is to be tried again."""
    if attempt + 1 >= TRIES_AT_MOST:
        return False
    if error.has_error_label(_TRANSIENT):
        return True
    # A key that another transaction has just taken: the next try sees it. If not, the id itself is there already.
    return attempt + 1 < TRIES_OF_A_KEY and _is_duplicate(error)


def _is_duplicate(error: PyMongoError) -> bool:
    return DUPLICATE in _codes(error)
