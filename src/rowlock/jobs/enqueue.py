"""Enqueue: from a type and a payload to a durable job. Calls that come together share a commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rowlock.errors import BadPayload, DuplicateJob, QueueFull
from rowlock.ids import uuid7
from rowlock.jobs.payload import encode, fingerprint
from rowlock.jobs.policy import QueueProfile, Unique
from rowlock.jobs.registry import JobType, Registry, checked_name
from rowlock.observe import trace
from rowlock.settings import DELAY_SECONDS_MAX, PRIORITY_RANGE, Settings
from rowlock.storage.base import Store
from rowlock.storage.records import NewJob, OnConflict, Receipt, UniqueKey

_RECHECK_FACTOR = 50.0  # a depth check may cost one fiftieth of the time


class Enqueuer:
    """Checks jobs and hands them to the store, at most one call at a time: what arrives meanwhile goes together."""

    def __init__(
        self, store: Store, registry: Registry, settings: Settings, profiles: dict[str, QueueProfile], strict: bool
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._profiles = profiles
        self._strict = strict
        self._pending: list[tuple[NewJob, asyncio.Future[Receipt]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._gates: dict[str, _Gate] = {}

    def prepare(
        self,
        type_name: str,
        payload: dict[str, Any],
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        company_id: str | None = None,
        unique: Unique | None = None,
        limit_key: str | None = None,
        job_id: str | None = None,
    ) -> NewJob:
        """A job ready for the store; raises for an unknown type or a payload that its handler would not take."""
        declared = self._registry.require(type_name) if self._strict else self._registry.get(type_name)
        text = encode(payload, type_name, self._settings.payload_bytes_max)
        if declared is not None and declared.arguments is not None:
            declared.arguments(text)
        if queue is None:
            queue = declared.queue if declared else self._settings.queue
        else:
            checked_name(queue, "queue")
        if priority is None:
            priority = declared.priority if declared else 100
        elif not PRIORITY_RANGE[0] <= priority <= PRIORITY_RANGE[1]:
            raise BadPayload(
                f"{type_name}: priority {priority} is not within {PRIORITY_RANGE[0]} to {PRIORITY_RANGE[1]}"
            )
        if not 0.0 <= delay_seconds <= DELAY_SECONDS_MAX:
            raise BadPayload(f"{type_name}: delay_seconds must be 0 to {DELAY_SECONDS_MAX:.0f}, not {delay_seconds}")
        if at is not None and at.tzinfo is None:
            raise BadPayload(f"{type_name}: `at` needs a time zone, for example datetime.now(UTC) + timedelta(hours=1)")
        if max_attempts is None:
            max_attempts = declared.retry.max_attempts if declared else self._settings.max_attempts
        elif not 1 <= max_attempts <= 1_000:
            raise BadPayload(f"{type_name}: max_attempts must be 1 to 1000, not {max_attempts}")
        if unique is None and declared is not None:
            unique = declared.unique
        if limit_key is None and declared is not None and declared.limit is not None:
            limit_key = _limit_key(declared, payload)
        return NewJob(
            job_id or uuid7(),
            type_name,
            text.decode(),
            queue,
            priority,
            max_attempts,
            declared.visibility_ms if declared else self._settings.visibility_ms,
            delay_seconds,
            at,
            company_id if company_id is not None else _company(payload),
            limit_key,
            trace.current(),
            None if unique is None else _unique_key(unique, type_name, payload),
        )

    async def submit(self, job: NewJob) -> Receipt:
        """Record one job; returns when it is durable."""
        await self._check_room(job.queue, 1)
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._pending.append((job, done))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await done

    async def submit_many(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        """Record all of these or none."""
        for queue in {job.queue for job in jobs}:
            await self._check_room(queue, sum(job.queue == queue for job in jobs))
        return await self._store.enqueue(jobs, connection)

    async def _flush(self) -> None:
        while self._pending:
            batch = self._pending[: self._settings.enqueue_max]
            del self._pending[: len(batch)]
            try:
                # Each of these stands alone: a duplicate is refused below, without undoing its neighbours.
                receipts = await self._store.enqueue([_softened(job) for job, _ in batch])
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
                    done.set_exception(
                        DuplicateJob(
                            f"{job.type}: job {receipt.job_id} is the same and exists already; nothing was enqueued",
                            existing_job_id=receipt.job_id,
                        )
                    )
                else:
                    done.set_result(receipt)

    async def _check_room(self, queue: str, adding: int) -> None:
        gate = self._gates.get(queue)
        if gate is None:
            profile = self._profiles.get(queue)
            gate = self._gates[queue] = _Gate(queue, (profile and profile.size_max) or self._settings.queue_size_max)
        await gate.admit(self._store, adding)


class _Gate:
    """Knows about how full a queue is, asking the store seldom while there is plenty of room."""

    def __init__(self, queue: str, size_max: int) -> None:
        self._queue = queue
        self._max = size_max
        self._known = size_max
        self._recheck_at = 0.0

    async def admit(self, store: Store, adding: int) -> None:
        if self._known + adding > self._max or time.monotonic() >= self._recheck_at:
            began = time.monotonic()
            self._known = await store.depth(self._queue, self._max + 1)
            self._recheck_at = time.monotonic() + _RECHECK_FACTOR * (time.monotonic() - began)
        if self._known + adding > self._max:
            raise QueueFull(
                f"queue {self._queue!r} holds {min(self._known, self._max):,} waiting jobs and may hold {self._max:,}; "
                "nothing was enqueued: start more workers, or raise ROWLOCK_QUEUE_SIZE_MAX"
            )
        self._known += adding


def _softened(job: NewJob) -> NewJob:
    if job.unique is None or job.unique.on_conflict is OnConflict.RETURN_EXISTING:
        return job
    unique = job.unique
    return job._replace(unique=UniqueKey(unique.key, unique.seconds, unique.while_active, OnConflict.RETURN_EXISTING))


def _unique_key(unique: Unique, type_name: str, payload: dict[str, Any]) -> UniqueKey:
    key = unique.key or fingerprint(type_name, payload)
    return UniqueKey(key, unique.seconds, unique.policy == "while_active", unique.on_conflict)


def _limit_key(declared: JobType, payload: dict[str, Any]) -> str:
    assert declared.limit is not None
    if declared.limit_by is None:
        return declared.limit
    if declared.limit_by not in payload:
        raise BadPayload(f"{declared.name}: its limit counts by {declared.limit_by!r}, which the payload lacks")
    return f"{declared.limit}:{payload[declared.limit_by]}"


def _company(payload: dict[str, Any]) -> str | None:
    found = payload.get("companyId", payload.get("company_id"))
    return found if isinstance(found, str) else None
