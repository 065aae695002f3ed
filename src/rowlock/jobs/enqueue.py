"""Enqueue: the one way from a call to a durable job. Concurrent calls share a commit."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from typing import Any, NamedTuple, Protocol

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.jobs.backpressure import Backpressure
from rowlock.jobs.new_jobs import Given, JobBuilder, JobStream, Options, softened
from rowlock.jobs.policy import QueueProfile
from rowlock.settings import Settings
from rowlock.storage.access import RequestAnswer, RequestState
from rowlock.storage.contract import Store
from rowlock.storage.duplicate import duplicate
from rowlock.storage.records import JobFilter, JobId, JobRecord, NewJob, OnConflict, Receipt

_PIECE_BYTES = 16 * 1_048_576  # of payloads in one statement, roughly
_FIRST_PIECE = 500
_IN_FLIGHT = 2  # pieces: one that the store works on, and one that is ready to follow


class Enqueued(NamedTuple):
    """The answer for one job."""

    job: NewJob
    receipt: Receipt
    record: JobRecord | None = None  # of a job that has run already, in resilient mode: it is not stored
    error: Exception | None = None  # of its handler


class Producer(Protocol):
    """What every call that enqueues jobs ends in; the application chooses one (see `Rowlock`)."""

    needs_store: bool

    async def enqueue(
        self,
        type_name: str,
        payload: dict[str, Any],
        options: Options,
        *,
        connection: Any = None,
        reserved: RequestAnswer | None = None,
    ) -> Enqueued:
        """Enqueue one job.

        With `connection`, the job is written in the caller's transaction. `reserved` has the id of the job, which an
        earlier try of the same request may have used: then that try's job is the answer.
        """
        ...

    async def enqueue_many(self, jobs: Iterable[Given], options: Options, connection: Any = None) -> list[Receipt]:
        """Enqueue all of these jobs or none."""
        ...

    def enqueue_blocking(self, jobs: Iterable[Given], options: Options, connection: Any) -> list[Receipt]:
        """Enqueue through the caller's synchronous connection, in the calling thread and in its transaction."""
        ...


class Enqueuer:
    """Passes jobs to the store, one call at a time; jobs that arrive meanwhile share the next call."""

    needs_store = True

    def __init__(
        self, store: Store, builder: JobBuilder, settings: Settings, profiles: Mapping[str, QueueProfile]
    ) -> None:
        self._store = store
        self._builder = builder
        self._settings = settings
        self._profiles = profiles
        self._pending: list[tuple[NewJob, asyncio.Future[Receipt]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._backpressure: dict[str, Backpressure] = {}

    async def enqueue(
        self,
        type_name: str,
        payload: dict[str, Any],
        options: Options,
        *,
        connection: Any = None,
        reserved: RequestAnswer | None = None,
    ) -> Enqueued:
        """Enqueue one job; returns its receipt when it is durable or, with `connection`, written."""
        job = self._builder.new(type_name, payload, options)
        if reserved is not None:
            job = job._replace(id=reserved.job_id)
            if reserved.state is RequestState.BROKEN_OFF:
                return Enqueued(job, await self._again(job))
        async with self._room([job]):
            if connection is not None:
                return Enqueued(job, (await self._store.enqueue([job], connection))[0])
            done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
            self._pending.append((job, done))
            if self._flusher is None or self._flusher.done():
                self._flusher = asyncio.create_task(self._flush())
            return Enqueued(job, await done)

    async def _again(self, job: NewJob) -> Receipt:
        """Enqueue a job whose id an earlier try may have used; returns that try's job if so.

        It is sent alone, since a taken id would fail the other jobs of its statement.
        """
        if await self._exists(job.id):
            return Receipt(job.id, True)
        async with self._room([job]):
            # The cancelled remains of the earlier try must not go with other jobs after this one either.
            self._pending[:] = [(new, done) for new, done in self._pending if new.id != job.id or not done.done()]
            try:
                (receipt,) = await self._store.enqueue([softened(job)])
            except StoreUnavailable:
                raise
            except StoreError:
                if not await self._exists(job.id):
                    raise
                return Receipt(job.id, True)
        if receipt.job_id == job.id:  # the earlier try's job, which is the same, may hold its key
            return Receipt(job.id, True)
        if job.unique and job.unique.on_conflict is OnConflict.REJECT:
            raise duplicate(job, receipt)
        return receipt

    async def _exists(self, job_id: JobId) -> bool:
        return bool((await self._store.page(JobFilter(ids=[job_id]), 1)).jobs)

    async def enqueue_many(self, jobs: Iterable[Given], options: Options, connection: Any = None) -> list[Receipt]:
        """Enqueue all of these jobs or none; returns their receipts.

        A large number is sent in pieces within one transaction, each built while the store writes the pieces before
        it; without transactions, all jobs are sent at once.
        """
        stream = self._builder.many(jobs, options)
        if connection is not None:
            every = stream.take_all()
            async with self._room(every):
                return await self._store.enqueue(every, connection)
        # Pieces grow: the store starts early, and the next, larger piece is built meanwhile.
        size = min(_FIRST_PIECE, self._settings.enqueue_max)
        piece = stream.take(size, _PIECE_BYTES)
        following = stream.take(1, _PIECE_BYTES)
        if following and await self._store.lacks_transactions():
            piece += following + stream.take_all()
            following = []
        if not following:
            async with self._room(piece):
                return await self._store.enqueue(piece)
        return await self._in_pieces(piece, following, stream)

    async def _in_pieces(self, piece: list[NewJob], following: list[NewJob], stream: JobStream) -> list[Receipt]:
        """Enqueue two pieces and the rest of a stream in one transaction."""
        receipts: list[Receipt] = []
        size = min(_FIRST_PIECE, self._settings.enqueue_max)
        sent: deque[asyncio.Task[list[Receipt]]] = deque()
        async with AsyncExitStack() as rooms, self._store.transaction() as transaction:
            try:
                while piece:
                    await rooms.enter_async_context(self._room(piece))
                    sent.append(asyncio.create_task(transaction.enqueue(piece)))
                    await asyncio.sleep(0)
                    size = min(size * 2, self._settings.enqueue_max)
                    piece = following + stream.take(size - len(following), _PIECE_BYTES)
                    following = []
                    while len(sent) >= (_IN_FLIGHT if piece else 1):
                        receipts += await sent[0]
                        sent.popleft()
            finally:
                await asyncio.gather(*sent, return_exceptions=True)
        return receipts

    def enqueue_blocking(self, jobs: Iterable[Given], options: Options, connection: Any) -> list[Receipt]:
        """Enqueue through the caller's synchronous connection; needs no event loop, and does not count the queue."""
        return self._store.enqueue_blocking(self._builder.many(jobs, options).take_all(), connection)

    async def _flush(self) -> None:
        while self._pending:
            batch = self._next_batch()
            del self._pending[: len(batch)]
            try:
                # These jobs are independent: a duplicate is refused below, without undoing its neighbours.
                receipts = await self._store.enqueue([softened(job) for job, _ in batch])
            except BaseException as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                if not isinstance(error, Exception):
                    raise
                continue
            for (job, done), receipt in zip(batch, receipts, strict=True):
                if done.done():
                    continue
                if not receipt.created and job.unique and job.unique.on_conflict is OnConflict.REJECT:
                    done.set_exception(duplicate(job, receipt))
                else:
                    done.set_result(receipt)

    def _next_batch(self) -> list[tuple[NewJob, asyncio.Future[Receipt]]]:
        """Return the first pending jobs, as many as fit in one statement."""
        room, batch = _PIECE_BYTES, []
        for waiting in islice(self._pending, self._settings.enqueue_max):
            batch.append(waiting)
            room -= len(waiting[0].payload)
            if room <= 0:
                break
        return batch

    @asynccontextmanager
    async def _room(self, jobs: Sequence[NewJob]) -> AsyncIterator[None]:
        """Reserve room in their queues for these jobs while they are sent; raises QueueFull."""
        async with AsyncExitStack() as admitted:
            for queue, adding in Counter(job.queue for job in jobs).items():
                backpressure = self._backpressure.get(queue)
                if backpressure is None:
                    profile = self._profiles.get(queue)
                    size_max = (profile and profile.size_max) or self._settings.queue_size_max
                    backpressure = self._backpressure[queue] = Backpressure(queue, size_max)
                await backpressure.admit(self._store, adding)
                admitted.callback(backpressure.arrived, adding)
            yield
