"""The client behind the MongoDB store: options of every statement, connections, and retries of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, InvalidURI, PyMongoError
from pymongo.read_concern import ReadConcern

from rowlock.clock import Clock
from rowlock.errors import SchemaMissing, SettingsError, StoreUnavailable
from rowlock.storage.mongo.dates import floor
from rowlock.storage.mongo.errors import said, translated_errors, without_password
from rowlock.storage.mongo.jobs.orphans import Orphans, VerbSessions
from rowlock.storage.mongo.transaction_retries import Tries

T = TypeVar("T")
Document = dict[str, Any]
Session = AsyncClientSession
Database = AsyncDatabase[Document]
Collection = AsyncCollection[Document]

DATABASE = "rowlock"
MIGRATIONS = "rowlock_migrations"
POOL_CONNECTIONS = 4
SELECT_SECONDS = 3.0  # to find a primary; an election may take longer, and callers then try again
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
BUSY_SECONDS = 3.0  # for verbs that take milliseconds: a slower answer means a half-open socket, or worse
ROLL_BACK_SECONDS = 2.0
REFUSAL_SECONDS = 0.05
ORPHAN_SECONDS = 1.0  # of retries; after that, the blocking transaction may belong to a killed process

OPTIONS: CodecOptions[Document] = CodecOptions(tz_aware=True, tzinfo=UTC)
DURABLE = WriteConcern(w="majority", j=True)
MAJORITY = ReadConcern("majority")
TRANSACTION: dict[str, Any] = {
    "read_concern": ReadConcern("snapshot"),
    "write_concern": DURABLE,
    "read_preference": ReadPreference.PRIMARY,
}
"""Options of every transaction. An option that is missing here would be taken from the URL."""


def database_of(url: str) -> str:
    """Return the database that a URL names (default: "rowlock")."""
    return unquote(urlsplit(url).path.lstrip("/")) or DATABASE


class Scope:
    """What a piece of work runs in: the database, the session of its transaction (None: no transaction), the clock."""

    __slots__ = ("clock", "db", "session")

    def __init__(self, db: Database, session: Session | None, clock: Clock) -> None:
        self.db = db
        self.session = session
        self.clock = clock

    def __getitem__(self, collection: str) -> Collection:
        return self.db[collection]

    async def now(self) -> datetime:
        """Return the clock's time, or else the server's, which costs a round trip that "$$NOW" does not."""
        given = self.clock.now()
        if given is not None:
            return floor(given)
        now: datetime = (await self.db.command("hello", codec_options=OPTIONS))["localTime"]
        return now


Work = Callable[[Scope], Awaitable[T]]


class Recorder(Protocol):
    """Records which attempt's transaction a session is in."""

    async def begin(self, db: Database, session: Session) -> None:
        """Called before the transaction has written anything."""

    async def finish(self, db: Database, session: Session) -> bool:
        """Called after its end; returns False if the session must not be used again."""


class Pool:
    """A client and the number of its users. A pool that was given up is closed when its last user is done."""

    __slots__ = ("client", "given_up", "users", "verb_sessions")

    def __init__(self, client: AsyncMongoClient[Document]) -> None:
        self.client = client
        self.verb_sessions = VerbSessions(client)
        self.users = 0
        self.given_up = False


class Link:
    """The client of one store object: created on first use, and again after its connections have gone dead."""

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
        self._closed = False
        self._orphans = Orphans()
        self._blocked = False  # a statement timed out

    async def open(self) -> None:
        self._closed = False
        await self._ask_what_it_is()

    async def _ask_what_it_is(self) -> None:
        async with self._opening:
            if self._replicated is None:
                async with self._in_time() as pool:
                    self._replicated = is_replicated(await pool.client.admin.command("hello"))

    async def close(self) -> None:
        self._closed = True
        pool, known = self._pool, self._replicated is not None
        self._pool = self._replicated = None
        self._migrated = False
        if pool is not None:
            if not known:
                # The driver is still connecting, and leaves its socket open if it is stopped in the middle of that.
                await asyncio.sleep(REFUSAL_SECONDS)
            else:
                with suppress(TimeoutError, PyMongoError):
                    async with asyncio.timeout(ROLL_BACK_SECONDS):
                        await pool.verb_sessions.close(database(pool.client, self.database))
            await pool.client.close()
        await asyncio.gather(*self._closing)

    @contextmanager
    def _used(self) -> Iterator[Pool]:
        """Yield the current pool, whose client stays open until the end of the block.

        Raises StoreUnavailable after close(): nothing would close a client created then.
        """
        if self._closed:
            raise StoreUnavailable(f"the connections to {self.url} are closed: open the store before using it")
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
    async def _in_time(self, seconds: float = STATEMENT_SECONDS) -> AsyncIterator[Pool]:
        """Yield the pool for statements that must finish in time. After a timeout, no new statement uses this pool.

        A half-open connection accepts what is sent and never answers, and the rest of its pool is no better. The driver
        detects this only later, and its own timeouts may swallow a cancellation on Python 3.11.
        """
        with translated_errors(self.url), self._used() as pool:
            try:
                async with asyncio.timeout(seconds):
                    yield pool
            except TimeoutError:
                pool.given_up = self._blocked = True  # without a transaction, statements wait for whatever blocks them
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
            told = said(error).replace(urlsplit(self.dsn).password or "\0", "…")
            raise SettingsError(f"DATABASE_URL {self.url} is not one that MongoDB takes: {told}") from None

    async def replicated(self) -> bool:
        """Whether the server has transactions and change streams, which need a replica set."""
        if self._replicated is None:
            await self._ask_what_it_is()
        return bool(self._replicated)

    async def ready(self) -> bool:
        """Like `replicated`; raises SchemaMissing without a schema: MongoDB would create bare collections."""
        if not self._migrated:
            await self.replicated()
            async with self._in_time() as pool:
                require_migrated(await self.scope(pool.client)[MIGRATIONS].find_one({}, {"_id": 1}), self.url)
            self._migrated = True
        return await self.replicated()

    async def bare(self, work: Work[T]) -> T:
        """Run the work without a transaction, on a database that may have no schema."""
        await self.replicated()
        async with self._in_time() as pool:
            return await work(self.scope(pool.client))

    async def plain(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Run the work without a transaction."""
        await self.ready()
        async with self._in_time(seconds) as pool:
            scope = self.scope(pool.client)
            if self._blocked:
                self._blocked = await self._orphans.end(scope.db)
            return await work(scope)

    async def atomic(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        """Run the work in a transaction, retried on conflicts while time is left; plainly without a replica set.

        The work may run several times: it must change nothing but the store.
        """
        replicated = await self.ready()
        async with self._in_time(seconds) as pool:
            tries, scope = Tries(seconds), self.scope(pool.client)
            while True:
                try:
                    return await (self._in_transaction(pool, work, seconds) if replicated else work(scope))
                except PyMongoError as error:
                    if not tries.again(error):
                        raise
                if tries.seconds > ORPHAN_SECONDS:
                    await self._orphans.end(scope.db)
                await asyncio.sleep(tries.pause_seconds)

    async def _in_transaction(self, pool: Pool, work: Work[T], seconds: float) -> T:
        db = database(pool.client, self.database)
        async with pool.verb_sessions.session(db) as session, _begun_in(session):
            result = await work(self.scope(pool.client, session))
            await commit(session, seconds)
            return result

    def scope(self, client: AsyncMongoClient[Document], session: Session | None = None) -> Scope:
        return Scope(database(client, self.database), session, self._clock)

    @asynccontextmanager
    async def without_session(self) -> AsyncIterator[Scope]:
        """Yield a scope outside of any transaction; its client stays open until the end of the block."""
        with self._used() as pool:
            yield self.scope(pool.client)

    @asynccontextmanager
    async def session(self, recorder: Recorder | None = None) -> AsyncIterator[Session]:
        """Yield a session in a transaction, which is rolled back at the end of the block unless it was committed."""
        with self._used() as pool:
            if recorder is None:
                async with _begun(pool.client) as session:
                    yield session
            else:
                async with self._recorded(pool.client, recorder) as session:
                    yield session

    @asynccontextmanager
    async def _recorded(self, client: AsyncMongoClient[Document], recorder: Recorder) -> AsyncIterator[Session]:
        db = database(client, self.database)
        session = client.start_session()  # reused only if the end of its transaction is known
        with translated_errors(self.url):
            async with asyncio.timeout(BUSY_SECONDS):
                await recorder.begin(db, session)
        try:
            async with _begun_in(session):
                yield session
        finally:
            await asyncio.shield(_finish(db, session, recorder))


@asynccontextmanager
async def _begun(client: AsyncMongoClient[Document]) -> AsyncIterator[Session]:
    async with client.start_session() as session, _begun_in(session):
        yield session


@asynccontextmanager
async def _begun_in(session: Session) -> AsyncIterator[None]:
    await session.start_transaction(**TRANSACTION)
    try:
        yield
    finally:
        # Shielded: a second cancellation must not leave locks behind.
        await asyncio.shield(_roll_back(session))


async def _finish(db: Database, session: Session, recorder: Recorder) -> None:
    with suppress(TimeoutError, PyMongoError):
        async with asyncio.timeout(ROLL_BACK_SECONDS):
            if await recorder.finish(db, session):
                await session.end_session()


async def _close(client: AsyncMongoClient[Document]) -> None:
    """Close a client, with a time limit: closing sends to the server over connections that may be dead."""
    with suppress(TimeoutError, PyMongoError):
        async with asyncio.timeout(ROLL_BACK_SECONDS):
            await client.close()


def require_migrated(migration: Document | None, url: str) -> None:
    if migration is None:
        raise SchemaMissing(f"{url} has no Rowlock schema: run `rowlock migrate`")


def is_replicated(hello: Document) -> bool:
    """Whether this server has transactions: it is a member of a replica set, or a mongos router."""
    return "setName" in hello or hello.get("msg") == "isdbgrid"


NO_TRANSACTIONS = (
    "this MongoDB server has no transactions, because it runs without a replica set: "
    "start it with --replSet and run rs.initiate() once (one member is enough)"
)


def database(client: Any, name: str) -> Any:
    """Return the database with the options of every statement; the client may be asynchronous or synchronous."""
    return client.get_database(
        name,
        codec_options=OPTIONS,
        read_preference=ReadPreference.PRIMARY,
        write_concern=DURABLE,
        read_concern=MAJORITY,
    )


async def commit(session: Session, seconds: float = STATEMENT_SECONDS) -> None:
    """Commit, and commit again if the reply is lost: to commit twice is to commit once."""
    tries = Tries(seconds)
    while True:
        try:
            await session.commit_transaction()
            return
        except PyMongoError as error:
            if not tries.commit_again(error):
                raise
        await asyncio.sleep(tries.pause_seconds)


async def _roll_back(session: Session) -> None:
    """Abort an uncommitted transaction; if the server cannot be reached, it ends the transaction by itself."""
    if session.in_transaction:
        with suppress(TimeoutError):
            async with asyncio.timeout(ROLL_BACK_SECONDS):
                await session.abort_transaction()


async def patiently(scope: Scope, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
    """Run the work. If it is the first of its transaction and conflicts, start the transaction again and retry."""
    session = scope.session
    first = is_new(scope)
    tries = Tries(seconds)
    while True:
        try:
            return await work(scope)
        except PyMongoError as error:
            if session is None or not first or not tries.again(error):
                raise
        await session.abort_transaction()
        await asyncio.sleep(tries.pause_seconds)
        await session.start_transaction(**TRANSACTION)


def is_new(scope: Scope) -> bool:
    """Whether the transaction has run no statement yet; always true without a transaction."""
    return scope.session is None or scope.session.operation_time is None
