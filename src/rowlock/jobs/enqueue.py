"""Enqueue: from a type and a payload to a durable job. Concurrent calls share a commit."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, datetime
from itertools import islice
from operator import length_hint
from typing import Any, Literal

from rowlock.errors import DELAY_SECONDS_MAX, BadPayload, StoreError, StoreUnavailable
from rowlock.gc_pause import no_garbage
from rowlock.ids import uuid7, uuid7s
from rowlock.jobs.backpressure import Backpressure
from rowlock.jobs.payload import encode, fingerprint
from rowlock.jobs.policy import QueueProfile, Unique
from rowlock.jobs.registry import JobType, Registry, checked_name
from rowlock.observe import trace
from rowlock.settings import NAME_LENGTH_MAX, PRIORITY_RANGE, Settings
from rowlock.storage.contract import Store
from rowlock.storage.duplicate import duplicate
from rowlock.storage.records import JobFilter, JobId, NewJob, OnConflict, Receipt, UniqueKey

Given = tuple[str, dict[str, Any]]  # type and payload
Caster = Callable[[dict[str, Any], JobId], NewJob]

_PIECE_BYTES = 16 * 1_048_576  # of payloads in one statement, roughly
_FIRST_PIECE = 500
_UNDER_WAY = 2  # pieces: one that the store works on, and one that is ready to follow


class Enqueuer:
    """Checks jobs and passes them to the store, one call at a time; jobs that arrive meanwhile share the next call."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        profiles: dict[str, QueueProfile],
        strict: bool,
        unique: Unique | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._profiles = profiles
        self._strict = strict
        self._unique = unique  # policy of jobs whose call and type name none
        self._pending: list[tuple[NewJob, asyncio.Future[Receipt]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._gates: dict[str, Backpressure] = {}

    def prepare(self, type_name: str, payload: dict[str, Any], **options: Any) -> NewJob:
        """Return a job ready for the store. Raises UnknownJobType, or BadPayload if its handler would not accept it."""
        return self._caster(type_name, Options(**options))(payload, uuid7())

    def prepare_many(self, jobs: Iterable[Given], options: Options) -> list[NewJob]:
        """Like `prepare` for many jobs; computes what they share only once."""
        given = list(jobs)
        return self._piece(iter(given), options, {}, len(given), sys.maxsize)

    def _piece(
        self, source: Iterator[Given], options: Options, casters: dict[str, Caster], count_max: int, bytes_max: int
    ) -> list[NewJob]:
        """Prepare the next jobs of `source`, as many as fit in one statement."""
        count = min(count_max, max(length_hint(source, count_max), 1))
        made = []
        with no_garbage():
            for (type_name, payload), job_id in zip(islice(source, count), uuid7s(count), strict=False):
                cast = casters.get(type_name)
                if cast is None:
                    cast = casters[type_name] = self._caster(type_name, options)
                job = cast(payload, job_id)
                made.append(job)
                bytes_max -= len(job[2])
                if bytes_max <= 0:
                    break
        return made

    def _caster(self, type_name: str, options: Options) -> Caster:
        """Return a function that makes jobs of one type and one call; what they share is computed here."""
        declared = self._registry.require(type_name) if self._strict else self._registry.get(type_name)
        checked_name(type_name, "job type")
        options.check(type_name)
        settings = self._settings
        bytes_max = settings.payload_bytes_max
        check = declared.arguments if declared else None
        limited = declared if declared and declared.limit is not None and options.limit_key is None else None
        limit_key = options.limit_key
        company_id = options.company_id
        unique = options.unique or (declared and declared.unique) or self._default_unique(options)
        if unique is not None and unique.policy == "none":
            unique = None
        priority, max_attempts = options.priority, options.max_attempts
        if priority is None:
            priority = declared.priority if declared else 100
        if max_attempts is None:
            max_attempts = declared.retry.max_attempts if declared else settings.max_attempts
        queue = options.queue or (declared.queue if declared else settings.queue)
        visibility_ms = declared.visibility_ms if declared else settings.visibility_ms
        delay_seconds, at, traceparent = options.delay_seconds, options.at, trace.current()
        oldest_name = self._registry.oldest_name(type_name)
        new = tuple.__new__  # the named constructor would cost more than encoding a small payload

        def cast(payload: dict[str, Any], job_id: JobId) -> NewJob:
            text = encode(payload, type_name, bytes_max)
            if check is not None:
                check(text)
            key = limit_key if limited is None else _limit_key(limited, payload)
            company = company_id
            if company is None and ("companyId" in payload or "company_id" in payload):
                company = _company(payload)
            held = _unique_key(unique, oldest_name, payload, company) if unique else None
            return new(
                NewJob,
                (
                    job_id,
                    type_name,
                    text,
                    queue,
                    priority,
                    max_attempts,
                    visibility_ms,
                    delay_seconds,
                    at,
                    company,
                    key,
                    traceparent,
                    held,
                ),
            )

        return cast

    def _default_unique(self, options: Options) -> Unique | None:
        """Return the application's default for jobs of this origin, or None; scheduled jobs have no default."""
        if options.origin == "schedule" or (options.origin == "code" and self._settings.unique_for == "requests"):
            return None
        return self._unique

    async def submit(self, job: NewJob) -> Receipt:
        """Enqueue one job; returns its receipt when it is durable."""
        async with self._room([job]):
            done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
            self._pending.append((job, done))
            if self._flusher is None or self._flusher.done():
                self._flusher = asyncio.create_task(self._flush())
            return await done

    async def submit_alone(self, job: NewJob) -> Receipt:
        """Enqueue one job whose id an earlier try may have used; returns that try's job if so.

        It is sent alone, since a taken id would fail the other jobs of its statement.
        """
        async with self._room([job]):
            # The cancelled remains of the earlier try must not go with other jobs after this one either.
            self._pending[:] = [(new, done) for new, done in self._pending if new.id != job.id or not done.done()]
            try:
                (receipt,) = await self._store.enqueue([softened(job)])
            except StoreUnavailable:
                raise
            except StoreError:
                if not (await self._store.page(JobFilter(ids=[job.id]), 1)).jobs:
                    raise
                return Receipt(job.id, True)
        if receipt.job_id == job.id:  # the earlier try's job, which is the same, may hold its key
            return Receipt(job.id, True)
        if job.unique and job.unique.on_conflict is OnConflict.REJECT:
            raise duplicate(job, receipt)
        return receipt

    async def submit_many(self, jobs: Iterable[Given], options: Options, connection: Any = None) -> list[Receipt]:
        """Enqueue all of these jobs or none; returns their receipts.

        A large number is sent in pieces within one transaction, each prepared while the store writes the pieces before
        it; without transactions, all jobs are sent at once.
        """
        source, casters = iter(jobs), dict[str, Caster]()
        if connection is not None:
            every = self.prepare_many(source, options)
            async with self._room(every):
                return await self._store.enqueue(every, connection)
        # Pieces grow: the store starts early, and the next, larger piece is prepared meanwhile.
        size = min(_FIRST_PIECE, self._settings.enqueue_max)
        piece = self._piece(source, options, casters, size, _PIECE_BYTES)
        following = self._piece(source, options, casters, 1, _PIECE_BYTES)
        if following and await self._store.lacks_transactions():
            rest = list(source)
            piece += following + self._piece(iter(rest), options, casters, len(rest), sys.maxsize)
            following = []
        if not following:
            async with self._room(piece):
                return await self._store.enqueue(piece)
        receipts: list[Receipt] = []
        sent: deque[asyncio.Task[list[Receipt]]] = deque()
        async with AsyncExitStack() as rooms, self._store.transaction() as transaction:
            try:
                while piece:
                    await rooms.enter_async_context(self._room(piece))
                    sent.append(asyncio.create_task(transaction.enqueue(piece)))
                    await asyncio.sleep(0)
                    size = min(size * 2, self._settings.enqueue_max)
                    piece = following + self._piece(source, options, casters, size - len(following), _PIECE_BYTES)
                    following = []
                    while len(sent) >= (_UNDER_WAY if piece else 1):
                        receipts += await sent[0]
                        sent.popleft()
            finally:
                await asyncio.gather(*sent, return_exceptions=True)
        return receipts

    async def _flush(self) -> None:
        while self._pending:
            batch = self._together()
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

    def _together(self) -> list[tuple[NewJob, asyncio.Future[Receipt]]]:
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
                backpressure = self._gates.get(queue)
                if backpressure is None:
                    profile = self._profiles.get(queue)
                    size_max = (profile and profile.size_max) or self._settings.queue_size_max
                    backpressure = self._gates[queue] = Backpressure(queue, size_max)
                await backpressure.admit(self._store, adding)
                admitted.callback(backpressure.arrived, adding)
            yield


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one enqueue call; None stands for the default of the type, then of the settings."""

    queue: str | None = None
    priority: int | None = None
    delay_seconds: float = 0.0
    at: datetime | None = None
    max_attempts: int | None = None
    company_id: str | None = None
    unique: Unique | None = None
    limit_key: str | None = None
    origin: Literal["code", "request", "schedule"] = "code"  # request: the HTTP API or the command line

    def check(self, what: str) -> None:
        """Raise BadPayload for a number or time that no store accepts, SettingsError for an invalid name."""
        low, high = PRIORITY_RANGE
        if self.priority is not None and not low <= self.priority <= high:
            raise BadPayload(f"{what}: priority must be {low} to {high}, not {self.priority}")
        if not 0.0 <= self.delay_seconds <= DELAY_SECONDS_MAX:
            raise BadPayload(f"{what}: delay_seconds must be 0 to {DELAY_SECONDS_MAX:.0f}, not {self.delay_seconds}")
        if self.at is not None and self.at.tzinfo is None:
            raise BadPayload(f"{what}: `at` needs a time zone, for example datetime.now(UTC) + timedelta(hours=1)")
        if self.at is not None and not MINYEAR < self.at.year < MAXYEAR:
            raise BadPayload(f"{what}: `at` must be in the years {MINYEAR + 1} to {MAXYEAR - 1}, not {self.at.year}")
        if self.max_attempts is not None and not 1 <= self.max_attempts <= 1_000:
            raise BadPayload(f"{what}: max_attempts must be 1 to 1000, not {self.max_attempts}")
        for name in ("queue", "company_id", "limit_key"):
            if (value := getattr(self, name)) is not None:
                checked_name(value, name)
        if self.unique is not None and isinstance(self.unique.key, str):
            checked_name(self.unique.key, "unique key")


def softened(job: NewJob) -> NewJob:
    """Return the job with on_conflict RETURN_EXISTING, so that a taken key is no error."""
    if job.unique is None or job.unique.on_conflict is OnConflict.RETURN_EXISTING:
        return job
    return job._replace(unique=replace(job.unique, on_conflict=OnConflict.RETURN_EXISTING))


def _unique_key(unique: Unique, type_name: str, payload: dict[str, Any], company_id: str | None) -> UniqueKey:
    """Return the unique key within the job's company: a duplicate must not reveal another company's jobs."""
    key = _key_of(unique.key(payload), type_name) if callable(unique.key) else unique.key
    key = key or fingerprint(type_name, payload)
    if company_id is not None:
        key = f"{company_id}\x1f{key}"  # neither part can contain the separator
    return UniqueKey(key, unique.seconds, unique.policy == "while_active", unique.on_conflict, unique.newest_wins)


def _key_of(key: object, type_name: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= NAME_LENGTH_MAX or not key.isprintable():
        raise BadPayload(f"{type_name}: its unique key must be 1 to {NAME_LENGTH_MAX} printable characters")
    return key


def _limit_key(declared: JobType, payload: dict[str, Any]) -> str:
    assert declared.limit is not None
    if declared.limit_by is None:
        return declared.limit
    if declared.limit_by not in payload:
        raise BadPayload(f"{declared.name}: its limit counts by {declared.limit_by!r}, which the payload lacks")
    key = f"{declared.limit}:{payload[declared.limit_by]}"
    if len(key) > NAME_LENGTH_MAX or not key.isprintable():
        raise BadPayload(
            f"{declared.name}: {declared.limit_by} makes a limit key that is not {NAME_LENGTH_MAX} printable characters"
        )
    return key


def _company(payload: dict[str, Any]) -> str | None:
    found = payload.get("companyId", payload.get("company_id"))
    return found if isinstance(found, str) and 0 < len(found) <= NAME_LENGTH_MAX and found.isprintable() else None
