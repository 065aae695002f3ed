"""The client behind the MongoDB store: what every statement is done with, and how transactions are tried."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, InvalidURI, PyMongoError
from pymongo.read_concern import ReadConcern

from rowlock.clock import Clock
from rowlock.errors import SchemaMissing, SettingsError
from rowlock.storage.mongo.moments import floor
from rowlock.storage.mongo.words import TRANSIENT, is_duplicate, own_words, said, without_password

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

_UNKNOWN = "UnknownTransactionCommitResult"
PATIENCE_SECONDS = 45.0  # shorter than a statement may take


def database_of(url: str) -> str:
    """The database that a URL names."""
    return unquote(urlsplit(url).path.lstrip("/")) or DATABASE


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
            told = said(error).replace(urlsplit(self.dsn).password or "\0", "…")
            raise SettingsError(f"DATABASE_URL {self.url} is not one that MongoDB takes: {told}") from None

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
    if error.has_error_label(TRANSIENT):
        return True
    # A key that another transaction has just taken: the next try sees it. If not, the id itself is there already.
    return attempt + 1 < TRIES_OF_A_KEY and is_duplicate(error)
