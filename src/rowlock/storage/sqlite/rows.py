"""Convert between SQLite's rows and the store's records; times are stored as microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from rowlock.storage.records import JobRecord, QueueRecord, Status, WorkerRecord

Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def duration_micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def moment_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else moment(micros)


def json_text(values: object) -> str:
    """Return JSON text for SQLite's json_each."""
    return orjson.dumps(values).decode()


def storable(text: str | None) -> str | None:
    """Replace characters that UTF-8 cannot encode: an odd file name in an error must not fail the batch."""
    return text if text is None or text.isascii() else text.encode(errors="replace").decode()


def job_record(row: Row) -> JobRecord:
    """Build a job record from a row of the statements `get` and `records`, in their column order."""
    _, id, type, queue, status, payload, *numbers = row[:12]
    created_at, available_at, updated_at, locked_at, lock_owner, started_at, finished_at, *rest = row[12:]
    priority, attempts, max_attempts, deaths, lease, visibility_ms = numbers
    progress, message, cancel_requested, result, error, company_id, limit_key, unique_key, trace = rest
    return JobRecord(
        id=id,
        type=type,
        queue=queue,
        status=Status(status),
        payload=payload,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        deaths=deaths,
        lease=lease,
        visibility_timeout_ms=visibility_ms,
        created_at=moment(created_at),
        available_at=moment(available_at),
        updated_at=moment(updated_at),
        locked_at=moment_or_none(locked_at),
        lock_owner=lock_owner,
        started_at=moment_or_none(started_at),
        finished_at=moment_or_none(finished_at),
        progress=progress,
        message=message,
        cancel_requested=bool(cancel_requested),
        result=result,
        error=error,
        company_id=company_id,
        limit_key=limit_key,
        unique_key=unique_key,
        trace=trace,
    )


def queue_record(row: Row, now: int) -> QueueRecord:
    name, paused, ready, delayed, processing, oldest = row
    return QueueRecord(name, bool(paused), ready, delayed, processing, None if oldest is None else (now - oldest) / 1e6)


def worker_record(row: Row) -> WorkerRecord:
    id, name, queues, types, started_at, seen_at = row
    served, known = tuple(orjson.loads(queues)), tuple(orjson.loads(types))
    return WorkerRecord(id, name, served, known, moment(started_at), moment(seen_at))
