"""Helpers that set up what a test is not about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from rowlock.ids import uuid7, uuid7s
from rowlock.storage.contract import Store
from rowlock.storage.records import (
    Claimed,
    Failed,
    JobFilter,
    JobId,
    JobRecord,
    NewJob,
    OnConflict,
    Outcome,
    Settlement,
    Status,
    UniqueKey,
    Worker,
    WorkerId,
)
from rowlock.storage.reliability import FailureFilter, FailureId, FailureRecord

ANN, BEN, CAT = uuid7s(3)  # workers
EVERYTHING = JobFilter()
EVERY_FAILURE = FailureFilter()
VISIBILITY_SECONDS = 30


def new_job(**changes: Any) -> NewJob:
    return NewJob(**({"id": uuid7(), "type": "send.email", "payload": '{"to": "a@b.c"}'} | changes))


def new_jobs(number: int, **changes: Any) -> list[NewJob]:
    return [new_job(id=id, **changes) for id in uuid7s(number)]


def worker(id: WorkerId = ANN, *queues: str, name: str = "worker") -> Worker:
    return Worker(id, name, queues or ("default",))


def forever(key: str = "k", on_conflict: OnConflict = OnConflict.REJECT) -> UniqueKey:
    return UniqueKey(key, on_conflict=on_conflict)


def window(seconds: float, key: str = "k", on_conflict: OnConflict = OnConflict.REJECT) -> UniqueKey:
    return UniqueKey(key, seconds=seconds, on_conflict=on_conflict)


def while_active(key: str = "k", on_conflict: OnConflict = OnConflict.REJECT) -> UniqueKey:
    return UniqueKey(key, while_active=True, on_conflict=on_conflict)


def newest_wins(key: str = "k") -> UniqueKey:
    return UniqueKey(key, None, True, OnConflict.RETURN_EXISTING, newest_wins=True)


async def put(store: Store, **changes: Any) -> JobId:
    """Enqueue one job."""
    (receipt,) = await store.enqueue([new_job(**changes)])
    return receipt.job_id


async def put_many(store: Store, number: int, **changes: Any) -> list[JobId]:
    return [receipt.job_id for receipt in await store.enqueue(new_jobs(number, **changes))]


async def take(store: Store, owner: WorkerId = ANN, queue: str = "default") -> Claimed:
    """Claim one job; fails unless there is one."""
    (claimed,) = await store.claim(queue, owner, 1)
    return claimed


async def taken(store: Store, owner: WorkerId = ANN, queue: str = "default", limit: int = 100) -> list[JobId]:
    """Claim the available jobs. Returns their ids in order."""
    return [claimed.id for claimed in await store.claim(queue, owner, limit)]


def end(claimed: Claimed, outcome: Outcome = Outcome.SUCCEEDED, **details: Any) -> Settlement:
    return Settlement(claimed.id, claimed.lease, outcome, **{"type": claimed.type, "queue": "default"} | details)


async def settle(
    store: Store, claimed: Claimed, outcome: Outcome = Outcome.SUCCEEDED, owner: WorkerId = ANN, **details: Any
) -> None:
    """Settle one attempt; fails if its lease is lost."""
    assert await store.settle(owner, [end(claimed, outcome, **details)]) == []


async def put_and_take(store: Store, owner: WorkerId = ANN, **changes: Any) -> Claimed:
    job_id = await put(store, **changes)
    claimed = await take(store, owner, changes.get("queue", "default"))
    assert claimed.id == job_id
    return claimed


async def put_and_end(store: Store, outcome: Outcome = Outcome.SUCCEEDED, **changes: Any) -> JobId:
    """Enqueue a job and settle its attempt. Returns its id."""
    claimed = await put_and_take(store, **changes)
    await settle(store, claimed, outcome, queue=changes.get("queue", "default"))
    return claimed.id


def kept(claimed: Claimed, stack: str | None = None) -> Failed:
    """Return a failure record of this attempt."""
    return Failed(uuid7(), claimed.payload, stack)


async def put_and_fail(
    store: Store,
    outcome: Outcome = Outcome.FAILED,
    error: str = "ValueError: no",
    delay_seconds: float = 0.0,
    **changes: Any,
) -> FailureRecord:
    """Enqueue a job and fail its attempt. Returns the failure and the job."""
    claimed = await put_and_take(store, **changes)
    queue, failure = changes.get("queue", "default"), kept(claimed)
    await settle(store, claimed, outcome, queue=queue, error=error, delay_seconds=delay_seconds, failure=failure)
    found = await store.failure(failure.id)
    assert found is not None
    return found


async def failures(store: Store, where: FailureFilter = EVERY_FAILURE, page: int = 100) -> list[FailureRecord]:
    """Return all matching failures, newest first, read page by page."""
    found: list[FailureRecord] = []
    cursor = None
    while True:
        answer = await store.failures(where, page, cursor)
        found += answer.failures
        if (cursor := answer.next_cursor) is None:
            return found


async def failure_ids(store: Store, where: FailureFilter = EVERY_FAILURE, page: int = 100) -> list[FailureId]:
    return [failure.id for failure in await failures(store, where, page)]


async def record(store: Store, job_id: JobId) -> JobRecord:
    found = await store.get(job_id)
    assert found is not None
    return found


async def status(store: Store, job_id: JobId) -> Status:
    return (await record(store, job_id)).status


async def listed(store: Store, where: JobFilter = EVERYTHING, page: int = 100) -> list[JobId]:
    """Return all matching jobs, newest first, read page by page."""
    found, cursor = [], None
    while True:
        answer = await store.page(where, page, cursor)
        found += [job.id for job in answer.jobs]
        if (cursor := answer.next_cursor) is None:
            return found


async def counted(store: Store) -> dict[Status, int]:
    """Return the counts of statuses that any job has."""
    return {status: number for status, number in (await store.counts()).items() if number}


def ids(claims: Iterable[Claimed]) -> list[JobId]:
    return [claimed.id for claimed in claims]


def flat(groups: Iterable[Sequence[Any]]) -> list[Any]:
    return [item for group in groups for item in group]


def near(one: datetime | None, two: datetime | None, within_seconds: float = 0.002) -> bool:
    """Whether two times are equal within the precision of stores."""
    assert one is not None
    assert two is not None
    return abs(one - two) <= timedelta(seconds=within_seconds)
