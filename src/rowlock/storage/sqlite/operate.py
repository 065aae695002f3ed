"""What operators do: look, cancel, retry, discard."""

from __future__ import annotations

import re
from typing import Any

import apsw

from rowlock.ids import is_uuid
from rowlock.storage.records import (
    CancelResult,
    JobFilter,
    JobId,
    JobRecord,
    Outcome,
    Page,
    QueueRecord,
    Retried,
    Status,
    WorkerRecord,
)
from rowlock.storage.sqlite.rows import job_record, json_text, queue_record, worker_record
from rowlock.storage.sqlite.sql import run, run_each, value

_NEWEST = 2**63 - 1
_CURSOR = re.compile(r"seq-([1-9][0-9]{0,18})")
_DEAD = {Status.FAILED: Outcome.FAILED, Status.CANCELLED: Outcome.CANCELLED}
_BY_STATUS = {
    Status.QUEUED: "pick_queued",
    Status.PROCESSING: "pick_processing",
    Status.SUCCEEDED: "pick_succeeded",
    Status.FAILED: "pick_dead",
    Status.CANCELLED: "pick_dead",
}


def get(connection: apsw.Connection, job_id: JobId) -> JobRecord | None:
    if not is_uuid(job_id):
        return None
    found = run(connection, "get", {"job_id": job_id.lower()})
    return job_record(found[0]) if found else None


def page(connection: apsw.Connection, where: JobFilter, limit: int, cursor: str | None) -> Page:
    """Jobs newest first; the cursor is the seq of the last one seen."""
    seqs = _pick(connection, where, limit + 1, _NEWEST if cursor is None else _seq_of(cursor))
    more = len(seqs) > limit
    seqs = seqs[:limit]
    rows = run(connection, "records", {"seqs": json_text(seqs)})
    return Page([job_record(row) for row in rows], f"seq-{seqs[-1]}" if more and seqs else None)


def count(connection: apsw.Connection, where: JobFilter, at_most: int) -> int:
    return len(_pick(connection, where, at_most))


def cancel(connection: apsw.Connection, now: int, job_id: JobId) -> CancelResult:
    if not is_uuid(job_id):
        return CancelResult.NOT_FOUND
    asked = {"job_id": job_id.lower()}
    waiting = run(connection, "cancel_ready", asked)
    waiting += run(connection, "cancel_delayed", asked)
    for seq, lease, attempt, deaths in waiting:
        ending = (seq, int(Outcome.CANCELLED), lease, attempt, deaths, None, now, None, "cancelled before it started")
        run(connection, "finish", ending)
        run(connection, "release_key", {**asked, "seq": seq})
        return CancelResult.CANCELLED
    if run(connection, "request_cancel", asked):
        return CancelResult.REQUESTED
    return CancelResult.ALREADY_FINAL if value(connection, "job_exists", asked) else CancelResult.NOT_FOUND


def retry(connection: apsw.Connection, now: int, where: JobFilter, limit: int) -> Retried:
    """Queue dead jobs again, oldest first, unless another job has their key."""
    retried: list[JobId] = []
    conflicts: list[JobId] = []
    seqs = []
    waiting = []
    for seq, job_id, key, releases_key, lease, error in _dead(connection, where, limit):
        if key is not None and not _retake_key(connection, now, key, job_id, bool(releases_key)):
            conflicts.append(job_id)
            continue
        retried.append(job_id)
        seqs.append(seq)
        waiting.append(
            {"seq": seq, "lease": lease, "attempt": 0, "deaths": 0, "available_at": now, "now": now, "error": error}
        )
    run(connection, "remove_finished", {"seqs": json_text(seqs)})
    run_each(connection, "wait_ready", waiting)
    return Retried(retried, conflicts)


def discard(connection: apsw.Connection, where: JobFilter, limit: int) -> list[JobId]:
    dead = _dead(connection, where, limit)
    remove(connection, [row[0] for row in dead], keys=True)
    return [row[1] for row in dead]


def remove(connection: apsw.Connection, seqs: list[int], *, keys: bool) -> None:
    """Remove finished jobs, and the unique keys that they hold if asked to."""
    gone = {"seqs": json_text(seqs)}
    if keys:
        run(connection, "remove_keys_of", gone)
    run(connection, "remove_finished", gone)
    run(connection, "remove_jobs", gone)


def queues(connection: apsw.Connection, now: int) -> list[QueueRecord]:
    return [queue_record(row, now) for row in run(connection, "queues", {"now": now})]


def counts(connection: apsw.Connection) -> dict[Status, int]:
    return dict(zip(Status, run(connection, "counts")[0], strict=True))


def workers(connection: apsw.Connection) -> list[WorkerRecord]:
    return [worker_record(row) for row in run(connection, "workers")]


def _retake_key(connection: apsw.Connection, now: int, key: str, job_id: JobId, releases_key: bool) -> bool:
    """Whether the job may run under its key; a key freed when the job was over is taken again."""
    holder = value(connection, "live_key_holder", {"key": key, "now": now})
    if holder is None and releases_key:
        run(connection, "take_key", {"key": key, "job_id": job_id, "expires_at": None, "now": now})
    return holder is None or holder == job_id


def _dead(connection: apsw.Connection, where: JobFilter, limit: int) -> list[tuple[Any, ...]]:
    """Failed or cancelled jobs as (seq, id, unique_key, releases_key, lease, error)."""
    if where.status is not None and where.status not in _DEAD:
        return []
    if where.ids is None:
        seqs = _run_pick(connection, "pick_dead", where, limit, _NEWEST)
    else:
        seqs = _pick(connection, where, len(where.ids))
    return run(connection, "dead_jobs", {"seqs": json_text(seqs)})[:limit]


def _pick(connection: apsw.Connection, where: JobFilter, limit: int, before: int = _NEWEST) -> list[int]:
    """The newest jobs that match, by the narrowest way to them."""
    if where.ids is not None:
        return _run_pick(connection, "pick_ids", where, limit, before)
    if where.status is not None:
        return _run_pick(connection, _BY_STATUS[where.status], where, limit, before)
    if where.company_id is not None:
        return _run_pick(connection, "pick_of_company", where, limit, before)
    return _run_pick(connection, "pick_any", where, limit, before)


def _run_pick(connection: apsw.Connection, name: str, where: JobFilter, limit: int, before: int) -> list[int]:
    asked = {
        "before": before,
        "limit": limit,
        "status": where.status and where.status.value,
        "outcome": where.status and _DEAD.get(where.status),
        "type": where.type,
        "queue": where.queue,
        "company_id": where.company_id,
        "ids": None if where.ids is None else json_text([id.lower() for id in where.ids if is_uuid(id)]),
    }
    return [seq for (seq,) in run(connection, name, asked)]


def _seq_of(cursor: str) -> int:
    if not (match := _CURSOR.fullmatch(cursor)):
        raise ValueError(f"{cursor[:40]!r} is not a cursor of this list: leave it out to start anew")
    return min(int(match[1]), _NEWEST)
