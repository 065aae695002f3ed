"""Converts jobs to statement arguments and rows to records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, TypeVar

import orjson

from rowlock.gc_pause import no_garbage
from rowlock.ids import uuid7
from rowlock.storage.duplicate import duplicate
from rowlock.storage.records import Claimed, JobRecord, NewJob, OnConflict, Outcome, Receipt, Settlement, Status

T = TypeVar("T")

BETWEEN = "\x1e"  # JSON escapes control characters, so this separates JSON texts


def columns(jobs: Sequence[NewJob], notify: bool, now: datetime | None) -> list[Any]:
    """Returns the arguments of rowlock.enqueue_many: sends a column of one value once, a column of NULLs not at all."""
    with no_garbage():
        turned = tuple(zip(*jobs, strict=True))
    ids, types, payloads, queues, priorities, attempts, visibility, delays, times, companies, limits, traces, unique = (
        turned
    )
    keyed = any(unique)
    return [
        BETWEEN.join(ids),
        once(types),
        BETWEEN.join(payloads),
        once(queues),
        once(priorities),
        once(attempts),
        once(visibility),
        once(tuple(map(float, delays))),  # psycopg refuses an array of integers and floats
        _none(times),
        _none(companies),
        _none(limits),
        _none(traces),
        [u and u.key for u in unique] if keyed else (),
        [u and u.seconds for u in unique] if keyed else (),
        [u is not None and u.while_active for u in unique] if keyed else (),
        [u is not None and u.newest_wins for u in unique] if any(u and u.newest_wins for u in unique) else (),
        notify,
        now,
    ]


def once(values: tuple[T, ...]) -> tuple[T, ...]:
    """Returns a column of equal values as one value; the functions in the database repeat it."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _none(values: tuple[T, ...]) -> tuple[T, ...]:
    return () if values.count(None) == len(values) else values


def receipts(jobs: Sequence[NewJob], refused: Iterable[Any]) -> list[Receipt]:
    """Returns receipts, given (ordinal, existing job, removed) of jobs not created; raises DuplicateJob for REJECT."""
    make = tuple.__new__  # skips Receipt's constructor: called once per job of a bulk enqueue
    with no_garbage():
        made = [make(Receipt, (job[0], True, False)) for job in jobs]
    for ordinal, existing, removed in refused:
        job = jobs[ordinal - 1]
        assert job.unique is not None
        if job.unique.on_conflict is OnConflict.REJECT:
            raise duplicate(job, Receipt(existing, False, removed))
        made[ordinal - 1] = Receipt(existing, False, removed)
    return made


def claimed(rows: Iterable[Any]) -> tuple[list[Claimed], int, str | None]:
    """Returns a claim's jobs in start order, the seq of the last one, and the limit key at which the claim stopped.

    The key is None if the claim looked at all of them.
    """
    make = tuple.__new__  # Claimed._make without its check: called once per job
    found: list[tuple[int, int, Claimed]] = []
    stopped_at = None
    for lease, attempt, most, deaths, priority, kind, key, seqs, ids, payloads, companies, traces in rows:
        if lease is None:
            stopped_at = key
            continue
        none = [None] * len(seqs)
        alike = zip(ids.split(BETWEEN), payloads.split(BETWEEN), companies or none, traces or none, strict=True)
        jobs = [
            make(Claimed, (id_, lease, attempt, most, deaths, priority, kind, payload, company, key, trace))
            for id_, payload, company, trace in alike
        ]
        found += zip(repeat(priority, len(seqs)), seqs, jobs, strict=True)
    found.sort()
    return [job for _, _, job in found], found[-1][1] if found else 0, stopped_at


def may_reject(jobs: Sequence[NewJob]) -> bool:
    """Returns whether a duplicate among these jobs must roll back the others."""
    return len(jobs) > 1 and any(job.unique and job.unique.on_conflict is OnConflict.REJECT for job in jobs)


def clean(text: str | None) -> str | None:
    """Returns the text with NUL and lone surrogates escaped: error messages may contain them, PostgreSQL not."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def failed_attempts(settlements: Sequence[Settlement]) -> str:
    """Returns the failures among these as the JSON that rowlock.settle takes."""
    failed = [
        {
            "id": end.failure.id,
            "job": end.job_id,
            "lease": end.lease,
            "payload": end.failure.payload,  # as text: PostgreSQL refuses to parse JSON with an escaped NUL
            "stack": clean(end.failure.stack),
        }
        for end in settlements
        if end.failure is not None
    ]
    return orjson.dumps(failed).decode()


def lost_attempt(row: Any, payload: str) -> dict[str, Any]:
    """Returns the failure of an attempt whose worker was lost."""
    return {
        "id": uuid7(),
        "job_id": row["id"],
        "job_name": row["type"],
        "queue_name": row["queue"],
        "company_id": row["company_id"],
        "payload": payload,
        "attempts": row["attempt"],
        "max_attempts": row["max_attempts"],
        "is_final_attempt": row["outcome"] == Outcome.FAILED,
        "failed_reason": row["error"],
        "started_at": row["started_at"].isoformat(),
        "owner": row["owner"],
    }


def record(row: Any) -> JobRecord:
    return JobRecord(
        id=str(row["id"]),
        type=row["type"],
        queue=row["queue"],
        status=Status(row["status"]),
        payload=row["payload"],
        priority=row["priority"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        deaths=row["deaths"],
        lease=row["lease"],
        visibility_timeout_ms=row["visibility_timeout_ms"],
        created_at=row["created_at"],
        available_at=row["available_at"],
        updated_at=row["updated_at"],
        locked_at=row["locked_at"],
        lock_owner=row["lock_owner"] and str(row["lock_owner"]),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        progress=row["progress"],
        message=row["message"],
        cancel_requested=row["cancel_requested"],
        result=row["result"],
        error=row["error"],
        company_id=row["company_id"],
        limit_key=row["limit_key"],
        unique_key=row["unique_key"],
        trace=row["trace"],
    )
