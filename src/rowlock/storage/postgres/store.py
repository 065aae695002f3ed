"""PostgresStore: the verbs of the contract, each one call of a function or statement in sql/postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

import orjson

from rowlock.clock import Clock, StoreClock
from rowlock.storage.base import StoreTransaction, Wake
from rowlock.storage.postgres.access import Access
from rowlock.storage.postgres.caller import enqueue_on, enqueue_on_blocking
from rowlock.storage.postgres.calling import Calling
from rowlock.storage.postgres.connection import BUSY_SECONDS, SQL, Connections, own_words
from rowlock.storage.postgres.examine import examine
from rowlock.storage.postgres.importing import Importing, ImportingTransaction
from rowlock.storage.postgres.listen import Bell, listen
from rowlock.storage.postgres.load import Loading
from rowlock.storage.postgres.operate import Operators
from rowlock.storage.postgres.overview import Overview
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
    Claimed,
    Finding,
    Glance,
    Held,
    JobId,
    Limit,
    NewJob,
    Outcome,
    Progress,
    Receipt,
    Rescued,
    Settlement,
    Status,
    Worker,
    WorkerId,
)


class PostgresStore(Schema, Operators, Reliability, Access, Importing, Calling, Watching, Overview):
    """Jobs in the schema `rowlock` of a PostgreSQL database."""

    def __init__(
        self, url: str, clock: Clock | None = None, *, connections: int = 4, listen_url: str | None = None
    ) -> None:
        self.clock: Clock = clock or StoreClock()
        self._connections = Connections(url, connections)
        self.url = self._connections.url
        self._listen_url = listen_url
        self._bell = Bell(self._connections)
        self._scans: dict[tuple[str, WorkerId], Scan] = {}

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    async def open(self) -> None:
        await self._connections.open()

    async def close(self) -> None:
        await self._bell.close()
        await self._connections.close()

    async def now(self) -> datetime:
        return self._now or await self._connections.value("now")

    async def examine(self) -> list[Finding]:
        return await examine(self._connections, await self.schema())

    # -- producers ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        if not jobs:
            return []
        if connection is not None:
            return await enqueue_on(connection, jobs, self._now)
        # The hint is sent after the commit: NOTIFY inside it would make all committers wait for each other.
        args = columns(jobs, False, self._now)
        async with self._connections.connection(transaction=may_reject(jobs)) as own:
            made = receipts(jobs, await own.fetch(SQL["enqueue"], *args))
        self._bell.ring({job.queue for job in jobs})
        return made

    def enqueue_blocking(self, jobs: Sequence[NewJob], connection: Any) -> list[Receipt]:
        return enqueue_on_blocking(connection, jobs, self._now) if jobs else []

    async def depth(self, queue: str, at_most: int) -> int:
        return int(await self._connections.value("depth", queue, at_most))

    # -- workers -----------------------------------------------------------------------------------

    async def beat(self, workers: Sequence[Worker]) -> list[Held]:
        rows = await self._connections.fetch(
            "beat",
            [worker.id for worker in workers],
            [worker.name for worker in workers],
            ["\n".join(worker.queues) for worker in workers],
            self._now,
        )
        return [Held._make(row) for row in rows]

    async def retire(self, owner: WorkerId) -> None:
        self._scans = {key: scan for key, scan in self._scans.items() if key[1] != owner}
        await self._connections.fetch("retire", owner)

    async def warm(self) -> None:
        await self._connections.open()
        if self._connections.pooled:
            return  # its sessions are shared: to hold several would keep them from others, or from each other for ever
        # A server process compiles and plans a function when it first runs it, for ten milliseconds each: do so now, on
        # as many connections as a busy worker uses at once.
        async with AsyncExitStack() as held:
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
            jobs, last_seq = claimed(rows)
            last = jobs[-1] if jobs else _NO_JOB
            if not scan.end(len(jobs), limit, (last.priority, last_seq), last.limit_key):
                return jobs

    async def glance(self, queues: Sequence[str]) -> list[Glance]:
        rows = await self._connections.fetch("glance", list(queues), self._now)
        return [Glance(*row) for row in rows]

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
            return []  # by far the most: one statement
        delays = (list(delay_seconds), list(delay_seconds.values()))
        async with self._connections.connection(transaction=True) as own:
            rows = await own.fetch(SQL["rescue"], limit, *delays, self._now, timeout=BUSY_SECONDS)
            lost = [lost_attempt(row, redact(row["payload"])) for row in rows if row["outcome"] != Outcome.CANCELLED]
            if lost:
                await own.execute(SQL["record_failures"], orjson.dumps(lost).decode(), self._now, timeout=BUSY_SECONDS)
        self._bell.ring({row["queue"] for row in rows})
        return [Rescued._make((*row[:6], _STATUS[row[6]])) for row in map(tuple, rows)]

    @asynccontextmanager
    async def _transaction(self, *, looks: bool = False) -> AsyncIterator[StoreTransaction]:
        async with self._connections.transaction(looks=looks) as connection:
            yield PostgresTransaction(connection, self.clock, self.url)

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        return self._transaction()

    def reading(self) -> AbstractAsyncContextManager[StoreTransaction]:
        return self._transaction(looks=True)

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


class PostgresTransaction(ImportingTransaction, Loading):
    """One transaction of a handler's, on a connection of the store's."""

    def __init__(self, connection: Any, clock: Clock, url: str) -> None:
        self.connection = connection
        self._clock = clock
        self._url = url
        self._turn = asyncio.Lock()

    async def execute(self, query: str, *args: Any) -> None:
        await self.connection.execute(query, *args)

    async def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(query, *args)]

    async def settle(self, owner: WorkerId, settlement: Settlement) -> bool:
        with own_words(self._url):
            columns = _settle_columns([settlement])
            return not await self.connection.fetchval(SQL["settle"], owner, *columns, self._clock.now())

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        if not jobs:
            return []
        with own_words(self._url):
            if may_reject(jobs):
                async with self._turn:
                    return await enqueue_on(self.connection, jobs, self._clock.now())
            args = columns(jobs, True, self._clock.now())
            async with self._turn:
                refused = await self.connection.fetch(SQL["enqueue"], *args)
            await asyncio.sleep(0)  # let those that wait for their turn go out: the database is idle
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
