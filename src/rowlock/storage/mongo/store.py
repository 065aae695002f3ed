"""MongoStore: the verbs of the contract, by subject."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import TypeVar

from rowlock.clock import Clock
from rowlock.errors import StoreError
from rowlock.storage.base import Wake
from rowlock.storage.mongo import schema
from rowlock.storage.mongo.access import Access
from rowlock.storage.mongo.alerts import Alerts
from rowlock.storage.mongo.calling import Calling
from rowlock.storage.mongo.changes import Changing
from rowlock.storage.mongo.claim import Claiming
from rowlock.storage.mongo.connection import (
    BUSY_SECONDS,
    POOL_CONNECTIONS,
    STATEMENT_SECONDS,
    Link,
    Work,
    commit,
)
from rowlock.storage.mongo.enqueue import Producing
from rowlock.storage.mongo.examine import examine
from rowlock.storage.mongo.failures import Failures
from rowlock.storage.mongo.importing import Importing
from rowlock.storage.mongo.limits import Limiting
from rowlock.storage.mongo.listen import listen
from rowlock.storage.mongo.listing import Listing
from rowlock.storage.mongo.locks import Locks
from rowlock.storage.mongo.notes import ring
from rowlock.storage.mongo.operate import Operators
from rowlock.storage.mongo.overview import Overview
from rowlock.storage.mongo.progress import Progressing
from rowlock.storage.mongo.retain import Retention
from rowlock.storage.mongo.schedules import Schedules
from rowlock.storage.mongo.settle import Settling
from rowlock.storage.mongo.tally import Counts
from rowlock.storage.mongo.transaction import MongoTransaction
from rowlock.storage.mongo.words import own_words
from rowlock.storage.mongo.workers import Working
from rowlock.storage.records import Finding, SchemaState

T = TypeVar("T")


class MongoStore(
    Producing,
    Claiming,
    Settling,
    Working,
    Progressing,
    Limiting,
    Operators,
    Listing,
    Counts,
    Failures,
    Locks,
    Schedules,
    Alerts,
    Access,
    Changing,
    Retention,
    Importing,
    Calling,
    Overview,
):
    """Jobs in the collections of a MongoDB database."""

    def __init__(self, url: str, clock: Clock, *, connections: int = POOL_CONNECTIONS) -> None:
        self._link = Link(url, clock, connections)
        self.url = self._link.url
        self._database = self._link.database
        self.clock = clock
        self._crowds = {}

    # -- life of the store ---------------------------------------------------------------------

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def now(self) -> datetime:
        return await self._link.bare(lambda scope: scope.now())

    async def migrate(self) -> list[str]:
        return await self._link.bare(schema.migrate)

    async def schema(self) -> SchemaState:
        return await self._link.bare(schema.state)

    async def check_schema(self) -> None:
        await self._link.bare(schema.check)

    async def examine(self) -> list[Finding]:
        return await self._link.bare(examine)

    # -- transactions of handlers --------------------------------------------------------------

    def transaction(self) -> AbstractAsyncContextManager[MongoTransaction]:
        return self._transaction()

    def reading(self) -> AbstractAsyncContextManager[MongoTransaction]:
        return self._transaction(looks=True)

    @asynccontextmanager
    async def _transaction(self, *, looks: bool = False) -> AsyncIterator[MongoTransaction]:
        if not await self._link.ready():
            raise StoreError(
                f"MongoDB at {self.url} is a single server without a replica set, which has no transactions: "
                "start it with --replSet and run rs.initiate() once"
            )
        transaction: MongoTransaction | None = None
        try:
            async with self._link.session() as session:
                transaction = MongoTransaction(self._link.scope(session.client, session), self.url, looks=looks)
                try:
                    yield transaction
                finally:
                    transaction.end()
                with own_words(self.url):
                    async with asyncio.timeout(STATEMENT_SECONDS):
                        await commit(session)
        finally:
            if transaction is not None:
                await transaction.release()

    # -- wake-ups ----------------------------------------------------------------------------------

    async def wake(self, queue: str) -> None:
        await self._plain(lambda scope: ring(scope, queue), BUSY_SECONDS)

    async def listen(self, wake: Wake) -> None:
        await listen(self._link, wake)

    # -- within ------------------------------------------------------------------------------------

    async def _atomic(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        return await self._link.atomic(work, seconds)

    async def _plain(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        return await self._link.plain(work, seconds)
