"""PostgresStore: the verbs of the contract, each one call of a function or statement in sql/postgres."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

import asyncpg
import orjson

from rowlock.clock import Clock, StoreClock
from rowlock.errors import StoreError, StoreUnavailable
from rowlock.storage.contract import Atomic, StoreTransaction, Wake
from rowlock.storage.imports import ImportStep
from rowlock.storage.postgres.caller import enqueue_on, enqueue_on_blocking
from rowlock.storage.postgres.calling import Calling
from rowlock.storage.postgres.changes import Changing
from rowlock.storage.postgres.connection import BUSY_SECONDS, SQL, STATEMENT_SECONDS, Connections, translated_errors
from rowlock.storage.postgres.diagnostics import diagnose
from rowlock.storage.postgres.importing import Importing, ImportingTransaction
from rowlock.storage.postgres.listen import Notifier, listen
from rowlock.storage.postgres.loading.load import Loading
from rowlock.storage.postgres.operate import Operators
from rowlock.storage.postgres.overview import Overview
from rowlock.storage.postgres.records import Recording
from rowlock.storage.postgres.reliability import Reliability
from rowlock.storage.postgres.rows import (
    BETWEEN,
    claimed,
    clean,
    columns,
    failed_attempts,
    lost_attempt,
    may_reject,
    once,
    receipts,
)
from rowlock.storage.postgres.scan import Scan
from rowlock.storage.postgres.schema import Schema
from rowlock.storage.postgres.watching import Watching
from rowlock.storage.records import (
    Attempt,
    Claimed,
    Finding,
    Held,
    JobId,
    Limit,
    Newest,
    NewJob,
    Outcome,
    Peek,
    Progress,
    Receipt,
    Rescued,
    Settlement,
    Status,
    Worker,
    WorkerId,
)

T = TypeVar("T")

_LOCKED_SECONDS = 0.5  # between two tries to free keys that a caller's transaction has locked


class PostgresStore(Schema, Operators, Recording, Reliability, Changing, Importing, Calling, Watching, Overview):
    """Jobs in the schema `rowlock` of a PostgreSQL database."""

    def __init__(
        self, url: str, clock: Clock | None = None, *, connections: int = 4, listen_url: str | None = None
    ) -> None:
        self.clock: Clock = clock or StoreClock()
        self._connections = Connections(url, connections)
        self.url = self._connections.url
        self._listen_url = listen_url
        self._notifier = Notifier(self._connections)
        self._scans: dict[tuple[str, WorkerId], Scan] = {}
        self._warming = asyncio.Lock()

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def open(self) -> None:
        await self._connections.open()

    async def close(self) -> None:
        try:
            await self._connections.close()  # waits for running verbs, which may ring the bell once more
        finally:
            await self._notifier.close()

    async def now(self) -> datetime:
        return self._now or await self._connections.value("now")

    async def diagnose(self) -> list[Finding]:
        return [await self._schema_finding(), *await diagnose(self._connections)]

    # -- producers ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        if not jobs:
            return []
        if connection is not None:
            return await enqueue_on(connection, jobs, self._now)
        # The hint is sent after the commit: NOTIFY inside the transaction serializes all commits.
        args = columns(jobs, False, self._now)
        async with self._connections.connection(transaction=may_reject(jobs)) as own:
            made = receipts(jobs, await own.fetch(SQL["enqueue"], *args))
        self._notifier.ring({job.queue for job in jobs})
        return made

    def enqueue_blocking(self, jobs: Sequence[NewJob], connection: Any) -> list[Receipt]:
        return enqueue_on_blocking(connection, jobs, self._now) if jobs else []

    async def newest(self, ids: Sequence[JobId]) -> dict[JobId, Newest]:
        rows = await self._connections.fetch("newest", list(ids))
        return {id: Newest(newest, payload) for id, newest, payload in rows}

    async def free_keys(self, newest: Mapping[JobId, JobId]) -> list[JobId]:
        deadline = time.monotonic() + STATEMENT_SECONDS
        while True:
            try:
                return list(await self._connections.value("free_keys", list(newest), list(newest.values())))
            except StoreError as error:
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
                if time.monotonic() > deadline:
                    reason = "a transaction that enqueued with the same unique key is still open"
                    raise StoreUnavailable(f"PostgreSQL at {self.url}: {reason}") from error
            await asyncio.sleep(_LOCKED_SECONDS)  # without a connection: claims and settlements need them

    async def depth(self, queue: str, at_most: int) -> int:
        return int(await self._connections.value("depth", queue, at_most))

    # -- workers -----------------------------------------------------------------------------------

    async def beat(self, workers: Sequence[Worker]) -> list[Held]:
        rows = await self._connections.fetch(
            "beat",
            [worker.id for worker in workers],
            [worker.name for worker in workers],
            ["\n".join(worker.queues) for worker in workers],
            ["\n".join(worker.types) for worker in workers],
            self._now,
        )
        return [Held._make(row) for row in rows]

    async def shortest_lease(self, owners: Sequence[WorkerId]) -> float | None:
        shortest = await self._connections.value("shortest_lease", list(owners))
        return None if shortest is None else shortest / 1_000

    async def retire(self, owner: WorkerId) -> None:
        self._scans = {key: scan for key, scan in self._scans.items() if key[1] != owner}
        await self._connections.fetch("retire", owner)

    async def warm(self) -> None:
        await self._connections.opened()
        if self._connections.pooled:
            return  # its sessions are shared: holding several would block other clients, or deadlock
        # A server process compiles and plans a function on its first run, in ten milliseconds each: do so now, on as
        # many connections as a busy worker uses at once. One worker of a process at a time: two would each hold some
        # of the connections and wait for the others.
        async with self._warming, AsyncExitStack() as held:
            for _ in range(min(_BUSY_CONNECTIONS, self._connections.size)):
                own = await held.enter_async_context(self._connections.connection())
                await own.fetch(SQL["claim"], "", _NOBODY, 0, -1, -1, None, self._now)
                await own.fetch(SQL["settle"], _NOBODY, *_settle_columns([_NOTHING]), self._now)

    async def claim(self, queue: str, owner: WorkerId, limit: int) -> list[Claimed]:
        if limit <= 0:
            return []
        scan = self._scans.setdefault((queue, owner), Scan())
        while True:
            priority, seq = scan.start()
            rows = await self._connections.fetch("claim", queue, owner, limit, priority, seq, scan.key, self._now)
            jobs, last_seq, stopped_at = claimed(rows)
            last = jobs[-1] if jobs else _NO_JOB
            if not scan.end(len(jobs), limit, (last.priority, last_seq), stopped_at):
                return jobs

    async def peek(self, queues: Sequence[str]) -> list[Peek]:
        rows = await self._connections.fetch("peek", list(queues), self._now)
        if rows and rows[0][3]:  # an idle worker writes nothing, so it would not notice a demoted primary
            await self._connections.leave_read_only()
            raise StoreUnavailable(f"PostgreSQL at {self.url} is not available: it accepts no writes")
        return [Peek(*row[:3]) for row in rows]

    async def settle(self, owner: WorkerId, settlements: Sequence[Settlement]) -> list[JobId]:
        if not settlements:
            return []
        return list(await self._connections.value("settle", owner, *_settle_columns(settlements), self._now))

    async def progress(self, owner: WorkerId, reports: Sequence[Progress]) -> list[JobId]:
        if not reports:
            return []
        ids, leases, percents, messages = zip(*reports, strict=True)
        told = (ids, leases, percents, [*map(clean, messages)])
        rows = await self._connections.fetch("progress", owner, *told, self._now)
        return [row[0] for row in rows]

    async def held(self, owner: WorkerId) -> list[Held]:
        return [Held._make(row) for row in await self._connections.fetch("held", owner)]

    async def rescue(
        self, limit: int, delay_seconds: Mapping[str, float], redact: Callable[[str], str]
    ) -> list[Rescued]:
        if not await self._connections.value("any_expired", self._now):
            return []  # the usual case: one statement
        delays = (list(delay_seconds), list(delay_seconds.values()))
        async with self._connections.connection(transaction=True) as own:
            rows = await own.fetch(SQL["rescue"], limit, *delays, self._now, timeout=BUSY_SECONDS)
            lost = [lost_attempt(row, redact(row["payload"])) for row in rows if row["outcome"] != Outcome.CANCELLED]
            if lost:
                await own.execute(SQL["record_failures"], orjson.dumps(lost).decode(), self._now, timeout=BUSY_SECONDS)
        self._notifier.ring({row["queue"] for row in rows})
        return [Rescued._make((*row[:6], _STATUS[row[6]])) for row in map(tuple, rows)]

    @asynccontextmanager
    async def _transaction(self, *, looks: bool = False) -> AsyncIterator[StoreTransaction]:
        async with self._connections.transaction(looks=looks) as connection:
            yield PostgresTransaction(connection, self.clock, self.url)

    def transaction(self, attempt: Attempt | None = None) -> AbstractAsyncContextManager[StoreTransaction]:
        # The server rolls a transaction back when its connection ends.
        return self._transaction()

    def reading(self) -> AbstractAsyncContextManager[StoreTransaction]:
        return self._transaction(looks=True)

    def import_step(self, step: ImportStep) -> AbstractAsyncContextManager[StoreTransaction]:
        return self._transaction()

    async def atomic(self, work: Atomic[T]) -> T:
        async with self._transaction() as transaction:
            return await work(transaction)

    async def _rows(self, statement: str, *args: Any) -> list[Any]:
        return await self._connections.run(statement, *args)

    async def transaction_bounds(self) -> None:
        return None

    async def lacks_transactions(self) -> str | None:
        return None

    # -- limits ------------------------------------------------------------------------------------

    async def define_limits(self, limits: Sequence[Limit]) -> None:
        await self._connections.fetch(
            "define_limits",
            [limit.name for limit in limits],
            [limit.concurrency for limit in limits],
            [limit.rate for limit in limits],
            [limit.per_seconds for limit in limits],
        )

    async def pause_key(self, key: str, seconds: float) -> None:
        await self._connections.fetch("pause_key", key, seconds, self._now)

    # -- wake-ups ----------------------------------------------------------------------------------

    async def wake(self, queue: str) -> None:
        await self._connections.fetch("wake", [queue])

    async def listen(self, wake: Wake) -> None:
        await listen(self._connections, self._listen_url, wake)


class PostgresTransaction(ImportingTransaction, Loading, Recording):
    """One transaction of a handler, on a connection of the store."""

    def __init__(self, connection: Any, clock: Clock, url: str) -> None:
        self.connection = connection
        self.clock = clock
        self._url = url
        self._turn = asyncio.Lock()

    async def execute(self, query: str, *args: Any) -> None:
        await self.connection.execute(query, *args)

    async def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(query, *args)]

    async def settle(self, owner: WorkerId, settlement: Settlement) -> bool:
        with translated_errors(self._url):
            columns = _settle_columns([settlement])
            return not await self.connection.fetchval(SQL["settle"], owner, *columns, self.clock.now())

    async def _rows(self, statement: str, *args: Any) -> list[Any]:
        with translated_errors(self._url):
            return list(await self.connection.fetch(statement, *args))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        if not jobs:
            return []
        with translated_errors(self._url):
            if may_reject(jobs):
                async with self._turn:
                    return await enqueue_on(self.connection, jobs, self.clock.now())
            args = columns(jobs, True, self.clock.now())
            async with self._turn:
                refused = await self.connection.fetch(SQL["enqueue"], *args)
            await asyncio.sleep(0)  # let waiting calls send their statement now: the database is idle
            return receipts(jobs, refused)


_BUSY_CONNECTIONS = 3
_NOBODY = "00000000-0000-0000-0000-000000000000"
_NOTHING = Settlement(_NOBODY, 0)
_NO_JOB = Claimed(_NOBODY, 0, 0, 0, 0, 0, "", "", None, None, None)
_STATUS = {Outcome.FAILED: Status.FAILED, Outcome.CANCELLED: Status.CANCELLED, Outcome.RETRY: Status.QUEUED}


def _settle_columns(settlements: Sequence[Settlement]) -> list[Any]:
    ids, leases, outcomes, seconds, delays, results, errors, types, queues, failures = zip(*settlements, strict=True)
    return [
        BETWEEN.join(ids),
        once(leases),
        [] if outcomes.count(1) == len(outcomes) else outcomes,
        seconds,
        [] if delays.count(0.0) == len(delays) else delays,
        [] if results.count(None) == len(results) else results,
        [] if errors.count(None) == len(errors) else list(map(clean, errors)),
        once(types),
        once(queues),
        None if failures.count(None) == len(failures) else failed_attempts(settlements),
    ]
