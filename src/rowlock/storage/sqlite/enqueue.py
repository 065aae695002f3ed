"""Enqueue: keys first, then the jobs, then their places in ready or delayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rowlock.errors import DuplicateJob
from rowlock.garbage import no_garbage
from rowlock.storage.records import NewJob, OnConflict, Receipt, UniqueKey
from rowlock.storage.sqlite.callers import Caller
from rowlock.storage.sqlite.rows import Row, duration_micros, micros
from rowlock.storage.sqlite.tally import Tally
from rowlock.storage.statements import statements

SQL = statements("sqlite")


def enqueue(caller: Caller, jobs: Sequence[NewJob], now: int) -> list[Receipt]:
    """Record the jobs in the transaction that is open; raises DuplicateJob for the first that may not share its key."""
    existing: dict[int, str] = {}
    for place, job in enumerate(jobs):
        if job.unique is not None and (holder := _take_key(caller, job, job.unique, now)) is not None:
            existing[place] = holder
    created = [job for place, job in enumerate(jobs) if place not in existing] if existing else jobs
    if created:
        rows = [_row(job, now) for job in created]
        caller.each(SQL["add_job"], rows)
        last: int = caller.rows(SQL["last_seq"])[0][0]
        span = {"first": last - len(created) + 1, "last": last}
        caller.rows(SQL["add_ready"], span)
        caller.rows(SQL["add_delayed"], span)
        tally = Tally()
        for (queue, type_name), number in Counter((job.queue, job.type) for job in created).items():
            tally[queue, type_name].alive = number
        for job, row in zip(created, rows, strict=True):
            if row[7] is not None and row[7] > now:
                tally[job.queue, job.type].delayed += 1
        tally.write(caller, now)
    with no_garbage():
        return [Receipt(existing.get(place, job.id), place not in existing) for place, job in enumerate(jobs)]


def enqueue_all_or_none(caller: Caller, jobs: Sequence[NewJob], now: int) -> list[Receipt]:
    """The same inside a transaction that is not ours to end: what fails leaves the rest of it as it was."""
    caller.begin()
    caller.rows("SAVEPOINT rowlock_enqueue")
    try:
        receipts = enqueue(caller, jobs, now)
    except BaseException:
        if caller.in_transaction:  # a full disk may have rolled everything back already
            caller.rows("ROLLBACK TO rowlock_enqueue")
            caller.rows("RELEASE rowlock_enqueue")
        raise
    caller.rows("RELEASE rowlock_enqueue")
    return receipts


def _take_key(caller: Caller, job: NewJob, unique: UniqueKey, now: int) -> str | None:
    """Take the job's key, or name the job that holds it."""
    expires_at = None if unique.seconds is None else now + duration_micros(unique.seconds)
    if caller.rows(SQL["take_key"], {"key": unique.key, "job_id": job.id, "expires_at": expires_at, "now": now}):
        return None
    holder: str = caller.rows(SQL["key_holder"], {"key": unique.key})[0][0]
    if unique.on_conflict is OnConflict.REJECT:
        raise DuplicateJob(
            f"job {holder} holds the unique key {unique.key!r}: wait for it, or enqueue with another key",
            existing_job_id=holder,
        )
    return holder


def _row(job: NewJob, now: int) -> Row:
    available_at = None
    if job.available_at is not None:
        available_at = max(micros(job.available_at), now)
    elif job.delay_seconds > 0:
        available_at = now + duration_micros(job.delay_seconds)
    unique = job.unique
    return (
        job.id,
        job.type,
        job.queue,
        job.priority,
        job.max_attempts,
        job.visibility_ms,
        now,
        available_at,
        job.company_id,
        job.limit_key or "",
        unique.key if unique else None,
        1 if unique and unique.while_active else 0,
        job.trace,
        job.payload,
    )
