"""MongoStore: implements the store contract with one class per subject."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import TypeVar

from rowlock.clock import Clock
from rowlock.errors import NoTransactions
from rowlock.storage.contract import Atomic, Wake
from rowlock.storage.imports import ImportStep, TransactionBounds
from rowlock.storage.mongo import schema
from rowlock.storage.mongo.calling import Calling
from rowlock.storage.mongo.connection import (
    BUSY_SECONDS,
    NO_TRANSACTIONS,
    POOL_CONNECTIONS,
    STATEMENT_SECONDS,
    Link,
    Work,
    commit,
)
from rowlock.storage.mongo.diagnostics import diagnose
from rowlock.storage.mongo.errors import translated_errors
from rowlock.storage.mongo.imports.import_locks import Room
from rowlock.storage.mongo.imports.importing import Importing
from rowlock.storage.mongo.jobs.alerts import Alerts
from rowlock.storage.mongo.jobs.attempts import Recorder
from rowlock.storage.mongo.jobs.changes import Changing
from rowlock.storage.mongo.jobs.claim import Claiming
from rowlock.storage.mongo.jobs.counter_deltas import ring
from rowlock.storage.mongo.jobs.counters import Counts
from rowlock.storage.mongo.jobs.enqueue import Producing
from rowlock.storage.mongo.jobs.failures import Failures
from rowlock.storage.mongo.jobs.limits import Limiting
from rowlock.storage.mongo.jobs.listing import Listing
from rowlock.storage.mongo.jobs.operate import Operators
from rowlock.storage.mongo.jobs.overview import Overview
from rowlock.storage.mongo.jobs.progress import Progressing
from rowlock.storage.mongo.jobs.retention import Retention
from rowlock.storage.mongo.jobs.settle import Settling
from rowlock.storage.mongo.jobs.workers import Working
from rowlock.storage.mongo.listen import listen
from rowlock.storage.mongo.loading.stepwise import step_of
from rowlock.storage.mongo.loading.transaction_bounds import transaction_bounds
from rowlock.storage.mongo.records import Recording
from rowlock.storage.mongo.transaction import MongoTransaction, RecordTransaction, TrialTransaction
from rowlock.storage.records import Attempt, Finding, SchemaState

T = TypeVar("T")


class MongoStore(
    Producing,
    Claiming,
    Settling,
    Working,
    Progressing,
    Limiting,
    Recording,
    Operators,
    Listing,
    Counts,
    Failures,
    Alerts,
    Changing,
    Retention,
    Importing,
    Calling,
    Overview,
):
    """A store in the collections of a MongoDB database."""

    def __init__(self, url: str, clock: Clock, *, connections: int = POOL_CONNECTIONS) -> None:
        self._link = Link(url, clock, connections)
        self.url = self._link.url
        self._database = self._link.database
        self.clock = clock
        self._crowds = {}
        self._room = Room()

    # -- lifecycle -----------------------------------------------------------------------------

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def now(self) -> datetime:
        return await self._link.bare(lambda scope: scope.now())

    async def migrate(self, *, views: bool = False) -> list[str]:  # the collections have the views' names already
        return await self._link.bare(schema.migrate)

    async def schema(self) -> SchemaState:
        return await self._link.bare(schema.state)

    async def check_schema(self) -> None:
        await self._link.bare(schema.check)

    async def diagnose(self) -> list[Finding]:
        return await self._link.bare(diagnose)

    # -- transactions --------------------------------------------------------------------------

    def transaction(self, attempt: Attempt | None = None) -> AbstractAsyncContextManager[MongoTransaction]:
        return self._transaction(attempt)

    def reading(self) -> AbstractAsyncContextManager[MongoTransaction]:
        return self._transaction(looks=True)

    def import_step(self, step: ImportStep) -> AbstractAsyncContextManager[MongoTransaction]:
        attempt = None if step.lease is None else Attempt(step.job_id, step.lease)
        return self._transaction(attempt, step=step)

    async def atomic(self, work: Atomic[T]) -> T:
        return await self._link.atomic(lambda scope: work(RecordTransaction(scope)))

    async def _one(self, work: Work[T]) -> T:
        return await self._plain(work)

    async def transaction_bounds(self) -> TransactionBounds:
        return await self._link.plain(transaction_bounds)

    async def lacks_transactions(self) -> str | None:
        return None if await self._link.replicated() else NO_TRANSACTIONS

    @asynccontextmanager
    async def _transaction(
        self, attempt: Attempt | None = None, *, looks: bool = False, step: ImportStep | None = None
    ) -> AsyncIterator[MongoTransaction]:
        if not await self._link.ready():
            if step is None and not looks:
                raise NoTransactions(NO_TRANSACTIONS)
            async with self._link.without_session() as scope:
                unbound = (
                    MongoTransaction(scope, self.url, looks=True) if step is None else step_of(scope, self.url, step)
                )
                try:
                    yield unbound
                finally:
                    unbound.end()
                    await unbound.release()
            return
        transaction: MongoTransaction | None = None
        try:
            async with self._link.session(attempt and Recorder(attempt)) as session:
                kind = TrialTransaction if step is not None and step.trial else MongoTransaction
                scope = self._link.scope(session.client, session)
                transaction = kind(scope, self.url, looks=looks, room=self._room)
                try:
                    if step is not None and step.chunk >= 0 and self._room.lacking:
                        await transaction.lock_for_rows(step.import_id)
                    yield transaction
                finally:
                    transaction.end()
                with translated_errors(self.url):
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

    # -- internals ----------------------------------------------------------------------------------

    async def _atomic(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        return await self._link.atomic(work, seconds)

    async def _plain(self, work: Work[T], seconds: float = STATEMENT_SECONDS) -> T:
        return await self._link.plain(work, seconds)
