"""Jobs as columns on the way in, records on the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, TypeVar

import orjson

from rowlock.errors import DuplicateJob
from rowlock.garbage import no_garbage
from rowlock.ids import uuid7
from rowlock.storage.records import Claimed, JobRecord, NewJob, OnConflict, Outcome, Receipt, Settlement, Status

T = TypeVar("T")

BETWEEN = "\x1e"  # in JSON a control character is written as an escape


def columns(jobs: Sequence[NewJob], notify: bool, now: datetime | None) -> list[Any]:
    """The arguments of rowlock.enqueue_many: a column of one value is sent once, one of nulls not at all."""
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
        notify,
        now,
    ]


def once(values: tuple[T, ...]) -> tuple[T, ...]:
    """A column of equal values as one value: the functions in the database fill it up."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _none(values: tuple[T, ...]) -> tuple[T, ...]:
    return () if values.count(None) == len(values) else values


def receipts(jobs: Sequence[NewJob], refused: Iterable[Any]) -> list[Receipt]:
    """What enqueue answers, given (ordinal, existing job) of those that were not created; raises for REJECT."""
    make = tuple.__new__  # one per job of a bulk enqueue
    with no_garbage():
        made = [make(Receipt, (job[0], True)) for job in jobs]
    for ordinal, existing in refused:
        job = jobs[ordinal - 1]
        assert job.unique is not None
        if job.unique.on_conflict is OnConflict.REJECT:
            raise DuplicateJob(
                f"{job.type}: job {existing} holds this unique key already; nothing was enqueued",
                existing_job_id=existing,
            )
        made[ordinal - 1] = Receipt(existing, False)
    return made


def claimed(rows: Iterable[Any]) -> tuple[list[Claimed], int]:
    """The jobs of a claim, in the order in which they are to start, and the seq of the last."""
    make = tuple.__new__  # what Claimed._make does, without its check, once per job
    found: list[tuple[int, int, Claimed]] = []
    for lease, attempt, most, deaths, priority, kind, key, seqs, ids, payloads, companies, traces in rows:
        none = [None] * len(seqs)
        alike = zip(ids.split(BETWEEN), payloads.split(BETWEEN), companies or none, traces or none, strict=True)
        jobs = [
            make(Claimed, (id_, lease, attempt, most, deaths, priority, kind, payload, company, key, trace))
            for id_, payload, company, trace in alike
        ]
        found += zip(repeat(priority, len(seqs)), seqs, jobs, strict=True)
    found.sort()
    return [job for _, _, job in found], found[-1][1] if found else 0


def may_reject(jobs: Sequence[NewJob]) -> bool:
    """Whether a duplicate among these must undo the others."""
    return len(jobs) > 1 and any(job.unique and job.unique.on_conflict is OnConflict.REJECT for job in jobs)


def clean(text: str | None) -> str | None:
    """Text that PostgreSQL takes: an error message may hold anything."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def failed_attempts(settlements: Sequence[Settlement]) -> str:
    """The failures among these, as rowlock.settle takes them."""
    failed = [
        {
            "id": end.failure.id,
            "job": end.job_id,
            "lease": end.lease,
            "payload": end.failure.payload,  # as text: taken apart as JSON, an escaped NUL in it is refused
            "stack": clean(end.failure.stack),
        }
        for end in settlements
        if end.failure is not None
    ]
    return orjson.dumps(failed).decode()


def lost_attempt(row: Any, payload: str) -> dict[str, Any]:
    """A failure for an attempt whose worker was lost."""
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
