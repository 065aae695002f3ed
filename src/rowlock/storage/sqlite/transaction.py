"""A transaction for a handler's own writes and the end of its job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.storage.records import NewJob, Receipt, Settlement, WorkerId
from rowlock.storage.sqlite.callers import ApswCaller
from rowlock.storage.sqlite.connection import SerialConnection, roll_back
from rowlock.storage.sqlite.connection import Work as LineWork
from rowlock.storage.sqlite.importing import ImportingTransaction
from rowlock.storage.sqlite.jobs.enqueue import enqueue_all_or_none
from rowlock.storage.sqlite.jobs.settle import settle
from rowlock.storage.sqlite.loading.load import Loading
from rowlock.storage.sqlite.records import Recording
from rowlock.storage.sqlite.rows import Row
from rowlock.storage.sqlite.work import Work

T = TypeVar("T")


class SqliteTransaction(ImportingTransaction, Loading, Recording):
    """A transaction on its own connection: it holds the write lock from start to end, or is read-only (`looks`)."""

    def __init__(self, line: SerialConnection, now: Callable[[apsw.Connection], int], *, looks: bool = False) -> None:
        self.connection: Any = line.connection
        self._line: SerialConnection | None = line
        self._now = now
        self._looks = looks

    async def execute(self, query: str, *args: Any) -> None:
        await self.fetch(query, *args)

    async def fetch(self, query: str, *args: Any) -> list[Row]:
        return await self._run(lambda connection: connection.execute(query, args).fetchall())

    async def settle(self, owner: WorkerId, settlement: Settlement) -> bool:
        return not await self._run(lambda connection: settle(connection, self._now(connection), owner, [settlement]))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        return await self._run(
            lambda connection: enqueue_all_or_none(ApswCaller(connection), jobs, self._now(connection))
        )

    async def begin(self) -> None:
        begin = "PRAGMA query_only = ON; BEGIN" if self._looks else "BEGIN IMMEDIATE"
        await self._run(lambda connection: connection.execute(begin))

    async def commit(self) -> None:
        await self._run(lambda connection: connection.execute("COMMIT"))

    async def end(self) -> SerialConnection:
        """Roll back what was not committed and return the connection; this object cannot be used afterwards."""
        line, self._line, self.connection = self._line, None, None
        assert line is not None
        await line.run(roll_back)
        if self._looks:
            await line.run(lambda connection: connection.execute("PRAGMA query_only = OFF"))
        return line

    async def _read(self, work: Work[T]) -> T:
        return await self._run(lambda connection: work(connection, self._now(connection)))

    async def _write(self, work: Work[T]) -> T:
        return await self._read(work)

    async def _run(self, work: LineWork[T]) -> T:
        if self._line is None:
            raise StoreError("this transaction has ended: begin another with store.transaction()")
        try:
            return await self._line.run(work)
        except StoreUnavailable as error:
            if self._looks and isinstance(error.__cause__, apsw.ReadOnlyError):
                raise StoreError("this transaction only looks: write in one of store.transaction()") from error
            raise
