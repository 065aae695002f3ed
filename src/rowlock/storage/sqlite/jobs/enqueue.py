"""Enqueue: take the unique keys, insert the jobs, then add them to ready or delayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rowlock.gc_pause import no_garbage
from rowlock.storage.duplicate import duplicate
from rowlock.storage.records import NewJob, OnConflict, Receipt, UniqueKey
from rowlock.storage.sqlite.callers import Caller
from rowlock.storage.sqlite.jobs.counters import Counters
from rowlock.storage.sqlite.rows import Row, duration_micros, micros
from rowlock.storage.statements import statements

SQL = statements("sqlite")


def enqueue(caller: Caller, jobs: Sequence[NewJob], now: int) -> list[Receipt]:
    """Record the jobs in the open transaction; raises DuplicateJob if a key is taken and its policy is REJECT."""
    existing: dict[int, Receipt] = {}
    mine: set[str] = set()  # the jobs of this call that hold a key
    for place, job in enumerate(jobs):
        if job.unique is None:
            continue
        holder = _take_key(caller, job, job.unique, now, mine)
        if holder is None:
            mine.add(job.id)
        elif job.unique.on_conflict is OnConflict.REJECT:
            raise duplicate(job, holder)
        else:
            existing[place] = holder
    created = [job for place, job in enumerate(jobs) if place not in existing] if existing else jobs
    if created:
        rows = [_row(job, now) for job in created]
        caller.each(SQL["add_job"], rows)
        last: int = caller.rows(SQL["last_seq"])[0][0]
        span = {"first": last - len(created) + 1, "last": last}
        caller.rows(SQL["add_ready"], span)
        caller.rows(SQL["add_delayed"], span)
        counters = Counters()
        for (queue, type_name), number in Counter((job.queue, job.type) for job in created).items():
            counters[queue, type_name].alive = number
        for job, row in zip(created, rows, strict=True):
            if row[7] is not None and row[7] > now:
                counters[job.queue, job.type].delayed += 1
        counters.write(caller, now)
    for place, holder in existing.items():
        unique, job = jobs[place].unique, jobs[place]
        if unique is not None and unique.newest_wins:
            caller.rows(SQL["take_over"], {"holder": holder.job_id, "newest": job.id, "payload": job.payload})
    with no_garbage():
        return [existing.get(place) or Receipt(job.id, True) for place, job in enumerate(jobs)]


def enqueue_all_or_none(caller: Caller, jobs: Sequence[NewJob], now: int) -> list[Receipt]:
    """Like `enqueue`, inside the caller's transaction: an error undoes the enqueue and nothing else."""
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


def _take_key(caller: Caller, job: NewJob, unique: UniqueKey, now: int, mine: set[str]) -> Receipt | None:
    """Take the job's key and return None, or return a receipt of its holder; jobs in `mine` are not recorded yet."""
    expires_at = None if unique.seconds is None else now + duration_micros(unique.seconds)
    if caller.rows(SQL["take_key"], {"key": unique.key, "job_id": job.id, "expires_at": expires_at, "now": now}):
        return None
    ((holder, exists),) = caller.rows(SQL["key_holder"], {"key": unique.key})
    return Receipt(holder, False, not exists and holder not in mine)


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
