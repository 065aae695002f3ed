"""SqliteStore: each method of the contract is one piece of work on the writer's or the reader's connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

import apsw

from rowlock.clock import Clock
from rowlock.errors import StoreUnavailable
from rowlock.storage.contract import Atomic, Wake
from rowlock.storage.imports import ImportStep
from rowlock.storage.records import (
    Attempt,
    CancelResult,
    Claimed,
    Finding,
    Held,
    JobFilter,
    JobId,
    JobRecord,
    KeepPolicy,
    Limit,
    Newest,
    NewJob,
    Page,
    Peek,
    Progress,
    QueueRecord,
    Receipt,
    Rescued,
    Retried,
    SchemaState,
    Settlement,
    Status,
    Worker,
    WorkerId,
    WorkerRecord,
)
from rowlock.storage.reliability import Activity, FailureFilter, FailureId, FailurePage, FailureRecord, Total
from rowlock.storage.sqlite import diagnostics as diagnose
from rowlock.storage.sqlite import listen, schema
from rowlock.storage.sqlite.callers import ApswCaller, Caller, caller_of
from rowlock.storage.sqlite.calling import Calling
from rowlock.storage.sqlite.connection import Reader, SerialConnection, Writer, open_files, path_of, started
from rowlock.storage.sqlite.errors import explaining
from rowlock.storage.sqlite.importing import Importing
from rowlock.storage.sqlite.jobs import claim, counters, operate, settle
from rowlock.storage.sqlite.jobs import failures as record
from rowlock.storage.sqlite.jobs import retention as retain
from rowlock.storage.sqlite.jobs.changes import Changing
from rowlock.storage.sqlite.jobs.enqueue import enqueue, enqueue_all_or_none
from rowlock.storage.sqlite.jobs.overview import Overview
from rowlock.storage.sqlite.records import Recording
from rowlock.storage.sqlite.reliability import Reliability
from rowlock.storage.sqlite.rows import duration_micros, micros, moment
from rowlock.storage.sqlite.sql import run, run_each, value
from rowlock.storage.sqlite.transaction import SqliteTransaction
from rowlock.storage.sqlite.watching import Watching
from rowlock.storage.sqlite.work import T, Work
from rowlock.storage.statements import statements

SQL = statements("sqlite")

IDLE_AT_MOST = 4
"""Idle connections that are kept for later transactions."""


class SqliteStore(Recording, Reliability, Changing, Importing, Calling, Watching, Overview):
    """Jobs in one SQLite file, shared by any number of processes on this machine."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self.path = path_of(url)
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._idle: list[SerialConnection] = []
        self._opening = asyncio.Lock()
        self._closed = False
        self._round = claim.Round()

    # -- life of the store ---------------------------------------------------------------------

    async def open(self) -> None:
        self._closed = False
        await self._opened()

    async def _opened(self) -> tuple[Reader, Writer]:
        """Open the connections on first use; raises StoreUnavailable after close(), as nothing would close them."""
        async with self._opening:
            if not self._closed and self._writer is None:
                self._writer = await started(Writer, self.path, "writer")
            if not self._closed and self._reader is None:
                self._reader = await started(Reader, self.path, "reader")
            if self._closed:  # perhaps while they were opened
                await self.close()
            if self._reader is None or self._writer is None:
                raise StoreUnavailable(f"{self.path} is closed: open the store before using it")
            return self._reader, self._writer

    async def close(self) -> None:
        self._closed = True
        lines = [line for line in (self._reader, *self._idle, self._writer) if line is not None]
        self._reader = self._writer = None
        self._idle.clear()
        for line in lines:
            line.stop()  # all of them, even if this coroutine is cancelled while it waits for the first
        for line in lines:
            await line.close()

    async def now(self) -> datetime:
        return moment(await self._read(lambda connection, now: now))

    async def migrate(self, *, views: bool = False) -> list[str]:  # no views: the tables have these names
        return await self._write(schema.migrate)

    async def schema(self) -> SchemaState:
        return await self._read(lambda connection, now: schema.state(connection))

    async def check_schema(self) -> None:
        await self._read(lambda connection, now: schema.check(connection))

    async def diagnose(self) -> list[Finding]:
        return await self._read(lambda connection, now: diagnose.diagnose(connection, self.path))

    # -- producers ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        if connection is not None:
            return self.enqueue_blocking(jobs, connection)
        return await self._write(lambda connection, now: enqueue(ApswCaller(connection), jobs, now))

    def enqueue_blocking(self, jobs: Sequence[NewJob], connection: Any) -> list[Receipt]:
        caller = caller_of(connection, opened=open_files())
        with explaining(self.path):
            return enqueue_all_or_none(caller, jobs, self._now_through(caller))

    async def newest(self, ids: Sequence[JobId]) -> dict[JobId, Newest]:
        def read(connection: apsw.Connection, now: int) -> dict[JobId, Newest]:
            found = {id: run(connection, "newest", {"id": id}) for id in ids}
            return {id: Newest(*rows[0]) for id, rows in found.items() if rows}

        return await self._read(read)

    async def free_keys(self, newest: Mapping[JobId, JobId]) -> list[JobId]:
        def write(connection: apsw.Connection, now: int) -> list[JobId]:
            for id, last in newest.items():
                run(connection, "free_newest_key", {"id": id, "newest": last})
            found = {id: run(connection, "newest", {"id": id}) for id in newest}
            return [id for id, rows in found.items() if rows and rows[0][0] > newest[id]]

        return await self._write(write)

    async def depth(self, queue: str, at_most: int) -> int:
        asked = {"queue": queue, "at_most": at_most}
        return await self._read(lambda connection, now: int(value(connection, "depth", asked)))

    # -- workers -----------------------------------------------------------------------------------

    async def beat(self, workers: Sequence[Worker]) -> list[Held]:
        return await self._write(lambda connection, now: settle.beat(connection, now, workers))

    async def shortest_lease(self, owners: Sequence[WorkerId]) -> float | None:
        shortest = await self._read(lambda connection, now: settle.shortest_lease(connection, owners))
        return None if shortest is None else shortest / 1_000

    async def retire(self, owner: WorkerId) -> None:
        await self._write(lambda connection, now: _run(connection, "retire", owner=owner))

    async def warm(self) -> None:
        await self._opened()

    async def claim(self, queue: str, owner: WorkerId, limit: int) -> list[Claimed]:
        return await self._write(lambda connection, now: claim.claim(connection, now, queue, owner, limit, self._round))

    async def peek(self, queues: Sequence[str]) -> list[Peek]:
        return await self._read(lambda connection, now: claim.peek(connection, now, queues))

    async def settle(self, owner: WorkerId, settlements: Sequence[Settlement]) -> list[JobId]:
        return await self._write(lambda connection, now: settle.settle(connection, now, owner, settlements))

    async def progress(self, owner: WorkerId, reports: Sequence[Progress]) -> list[JobId]:
        return await self._write(lambda connection, now: settle.progress(connection, now, owner, reports))

    async def held(self, owner: WorkerId) -> list[Held]:
        return await self._read(lambda connection, now: settle.held(connection, [owner]))

    async def rescue(
        self, limit: int, delay_seconds: Mapping[str, float], redact: Callable[[str], str]
    ) -> list[Rescued]:
        # Read the time before waiting for the write lock: heartbeats wait for it too, and that must not expire leases.
        asked = await self._read(lambda connection, now: now)
        return await self._write(lambda connection, now: settle.rescue(connection, asked, limit, delay_seconds, redact))

    def transaction(self, attempt: Attempt | None = None) -> AbstractAsyncContextManager[SqliteTransaction]:
        return self._transaction()

    def reading(self) -> AbstractAsyncContextManager[SqliteTransaction]:
        return self._transaction(looks=True)

    def import_step(self, step: ImportStep) -> AbstractAsyncContextManager[SqliteTransaction]:
        return self._transaction()

    async def atomic(self, work: Atomic[T]) -> T:
        async with self._transaction() as transaction:
            return await work(transaction)

    async def transaction_bounds(self) -> None:
        return None

    async def lacks_transactions(self) -> str | None:
        return None

    @asynccontextmanager
    async def _transaction(self, *, looks: bool = False) -> AsyncIterator[SqliteTransaction]:
        if self._writer is None:
            await self._opened()
        line = self._idle.pop() if self._idle else await started(SerialConnection, self.path, "transaction")
        transaction = SqliteTransaction(line, self._now, looks=looks)
        try:
            await transaction.begin()
            yield transaction
            await transaction.commit()
        finally:
            # Shielded: a second cancellation must not leave the write lock held.
            await asyncio.shield(self._end(transaction))

    async def _end(self, transaction: SqliteTransaction) -> None:
        line = await transaction.end()
        if self._writer is None or len(self._idle) >= IDLE_AT_MOST:
            await line.close()
        else:
            self._idle.append(line)

    # -- limits -----------------------------------------------------------------------------------

    async def define_limits(self, limits: Sequence[Limit]) -> None:
        rows = [
            {
                "name": limit.name,
                "concurrency": limit.concurrency,
                "rate": limit.rate,
                "per_micros": duration_micros(limit.per_seconds),
            }
            for limit in limits
        ]
        await self._write(lambda connection, now: run_each(connection, "define_limit", rows))

    async def pause_key(self, key: str, seconds: float) -> None:
        await self._write(
            lambda connection, now: _run(connection, "pause_key", key=key, until=now + duration_micros(seconds))
        )

    # -- operators ---------------------------------------------------------------------------------

    async def get(self, job_id: JobId) -> JobRecord | None:
        return await self._read(lambda connection, now: operate.get(connection, job_id))

    async def page(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        return await self._read(lambda connection, now: operate.page(connection, where, limit, cursor))

    async def cancel(self, job_id: JobId) -> CancelResult:
        return await self._write(lambda connection, now: operate.cancel(connection, now, job_id))

    async def retry(self, where: JobFilter, limit: int) -> Retried:
        return await self._write(lambda connection, now: operate.retry(connection, now, where, limit))

    async def discard(self, where: JobFilter, limit: int) -> list[JobId]:
        return await self._write(lambda connection, now: operate.discard(connection, now, where, limit))

    async def count(self, where: JobFilter, at_most: int) -> int:
        return await self._read(lambda connection, now: operate.count(connection, where, at_most))

    async def pause(self, queue: str) -> None:
        await self._write(lambda connection, now: _run(connection, "pause", queue=queue, now=now))

    async def resume(self, queue: str) -> None:
        await self._write(lambda connection, now: _run(connection, "resume", queue=queue))

    async def queues(self) -> list[QueueRecord]:
        return await self._read(lambda connection, now: operate.queues(connection, now))

    async def counts(self) -> dict[Status, int]:
        return await self._read(lambda connection, now: counters.counts(connection))

    async def totals(self) -> list[Total]:
        return await self._read(lambda connection, now: counters.totals(connection))

    async def activity(self, seconds: float) -> list[Activity]:
        return await self._read(lambda connection, now: counters.activity(connection, now, seconds))

    async def compact(self, limit: int) -> int:
        return await self._write(lambda connection, now: counters.forget(connection, now))

    async def failures(self, where: FailureFilter, limit: int, cursor: str | None = None) -> FailurePage:
        return await self._read(lambda connection, now: record.failures(connection, where, limit, cursor))

    async def failure(self, failure_id: FailureId) -> FailureRecord | None:
        return await self._read(lambda connection, now: record.failure(connection, failure_id))

    async def add_failure(self, failure: FailureRecord) -> None:
        await self._write(lambda connection, now: record.add_failure(connection, failure))

    async def prune_failures(self, days: float, limit: int, *, count: int | None = None) -> int:
        return await self._write(lambda connection, now: record.prune(connection, now, days, limit, count))

    async def workers(self) -> list[WorkerRecord]:
        return await self._read(lambda connection, now: operate.workers(connection))

    async def prune(self, policies: Mapping[Status, KeepPolicy], limit: int) -> dict[Status, int]:
        return await self._write(lambda connection, now: retain.prune(connection, now, policies, limit))

    # -- wake-ups ----------------------------------------------------------------------------------

    async def wake(self, queue: str) -> None:
        await self._write(lambda connection, now: run(connection, "wake", {"queue": queue}))

    async def listen(self, wake: Wake) -> None:
        await listen.listen(self.path, wake)

    # -- internals ---------------------------------------------------------------------------------

    async def _write(self, work: Work[T]) -> T:
        """Run the work in a transaction that is durable when this returns."""
        writer = self._writer or (await self._opened())[1]
        return await writer.run(lambda connection: work(connection, self._now(connection)))

    async def _read(self, work: Work[T]) -> T:
        reader = self._reader or (await self._opened())[0]
        return await reader.run(lambda connection: work(connection, self._now(connection)))

    def _now(self, connection: apsw.Connection) -> int:
        return self._now_through(ApswCaller(connection))

    def _now_through(self, caller: Caller) -> int:
        """Return the clock's time, or else SQLite's, in microseconds."""
        given = self.clock.now()
        return micros(given) if given is not None else int(caller.rows(SQL["now"])[0][0])


def _run(connection: apsw.Connection, name: str, **bindings: Any) -> None:
    run(connection, name, bindings)
