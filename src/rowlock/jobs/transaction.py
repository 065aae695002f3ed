"""job.transaction(): the handler's writes and the job's completion in one commit, fenced by the lease."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rowlock.errors import JobError, LeaseLost, NoTransactions
from rowlock.jobs.new_jobs import Options
from rowlock.jobs.payload import encode_result
from rowlock.storage.contract import StoreTransaction
from rowlock.storage.imports import ImportId, ImportStep
from rowlock.storage.records import Attempt, Outcome, Receipt, Settlement

if TYPE_CHECKING:
    from rowlock.jobs.job import Job, JobContext


class JobTransaction:
    """A transaction whose writes happen exactly once: they commit with the job's success, or not at all."""

    def __init__(
        self, job: Job, context: JobContext, importing: tuple[ImportId, int] | None = None, *, ends: bool = True
    ) -> None:
        self.result: Any = None
        self._importing = importing  # import id and chunk index, if the job is a step of an import
        self._ends = ends  # False: the job goes on after this transaction
        self._job = job
        self._context = context
        self._inner: AbstractAsyncContextManager[StoreTransaction] | None = None
        self._store: StoreTransaction | None = None
        self._began = time.monotonic()

    @property
    def connection(self) -> Any:
        """The driver's connection, inside the transaction."""
        return self._open.connection

    @property
    def store(self) -> StoreTransaction:
        """The store's transaction, for Rowlock's own verbs."""
        return self._open

    async def execute(self, query: Any, *args: Any) -> None:
        """Run one statement; placeholders are the store's: $1 on PostgreSQL, ? on SQLite. On MongoDB, run a command."""
        await self._open.execute(query, *args)

    async def fetch(self, query: Any, *args: Any) -> list[Any]:
        """Run one query and return its rows: tuples, or documents on MongoDB."""
        return await self._open.fetch(query, *args)

    async def enqueue(self, type_name: str, payload: dict[str, Any] | None = None, **options: Any) -> Receipt:
        """Enqueue a job that exists if and only if this transaction commits."""
        builder = self._context.engine.builder
        job = builder.new(type_name, {} if payload is None else payload, Options(**options))
        return (await self._open.enqueue([job]))[0]

    @property
    def _open(self) -> StoreTransaction:
        if self._store is None:
            raise JobError("job.transaction() must be entered first: `async with job.transaction() as tx:`")
        return self._store

    async def __aenter__(self) -> JobTransaction:
        if self._job._settled:
            raise JobError("this job was completed by an earlier job.transaction(); a handler completes once")
        self._inner = self._begun()
        try:
            self._store = await self._inner.__aenter__()
        except NoTransactions as error:
            raise NoTransactions(f"job.transaction() in job type {self._job.type!r}: {error}") from None
        return self

    def _begun(self) -> AbstractAsyncContextManager[StoreTransaction]:
        context, claimed = self._context, self._job._claimed
        lease = claimed.lease if context.leased else None
        if self._importing is None:
            return context.store.transaction(None if lease is None else Attempt(claimed.id, lease))
        return context.store.import_step(ImportStep(*self._importing, claimed.id, context.owner, lease))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._inner is not None
        if error is None and self._ends:
            try:
                result = await self._settle()
            except BaseException as refused:
                await self._inner.__aexit__(type(refused), refused, refused.__traceback__)
                raise
        await self._inner.__aexit__(kind, error, trace)
        if error is None and self._ends:
            self._job._complete(result)

    async def _settle(self) -> str | None:
        """Settle the job in this transaction; returns its result as JSON text."""
        claimed = self._job._claimed
        given, limit = self.result, self._context.result_bytes_max
        result = None if given is None else encode_result(given, claimed.type, limit)
        if not self._context.leased:
            return result
        seconds = time.monotonic() - self._began
        settlement = Settlement(
            claimed.id,
            claimed.lease,
            Outcome.SUCCEEDED,
            seconds,
            result=result,
            type=claimed.type,
            queue=self._context.queue,
        )
        if not await self._open.settle(self._context.owner, settlement):
            raise LeaseLost(f"job {claimed.id}: another attempt owns it now; nothing of this transaction was kept")
        return result

    def __enter__(self) -> BlockingTransaction:
        loop = self._context.loop
        begun = asyncio.run_coroutine_threadsafe(self.__aenter__(), loop)
        try:
            begun.result()
        except BaseException as error:  # stopped while it began: nothing else would end it
            begun.cancel()
            asyncio.run_coroutine_threadsafe(self._abandon(error), loop)
            raise
        return BlockingTransaction(self, loop)

    async def _abandon(self, error: BaseException) -> None:
        if self._inner is not None and self._store is not None:
            self._store = None
            with contextlib.suppress(type(error)):
                await self._inner.__aexit__(type(error), error, error.__traceback__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.__aexit__(kind, error, trace), self._context.loop).result()


class BlockingTransaction:
    """The transaction for plain (synchronous) handlers; its calls run in the worker's event loop."""

    def __init__(self, inner: JobTransaction, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    @property
    def result(self) -> Any:
        return self._inner.result

    @result.setter
    def result(self, value: Any) -> None:
        self._inner.result = value

    def execute(self, query: Any, *args: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._inner.execute(query, *args), self._loop).result()

    def fetch(self, query: Any, *args: Any) -> list[Any]:
        return asyncio.run_coroutine_threadsafe(self._inner.fetch(query, *args), self._loop).result()

    def enqueue(self, type_name: str, payload: dict[str, Any] | None = None, **options: Any) -> Receipt:
        return asyncio.run_coroutine_threadsafe(self._inner.enqueue(type_name, payload, **options), self._loop).result()
