"""SQLite store: get, list, count, cancel, retry, discard and remove jobs."""

from __future__ import annotations

import re
from typing import Any

import apsw

from rowlock.ids import first_id, is_uuid
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
    lease_after_retry,
)
from rowlock.storage.sqlite.jobs import counters
from rowlock.storage.sqlite.rows import job_record, json_text, queue_record, storable, worker_record
from rowlock.storage.sqlite.sql import SQL, run, run_each, value

_NEWEST = 2**63 - 1
_OUTCOMES = {
    Status.SUCCEEDED: Outcome.SUCCEEDED,
    Status.FAILED: Outcome.FAILED,
    Status.CANCELLED: Outcome.CANCELLED,
}
_DEAD = (Status.FAILED, Status.CANCELLED)
_OF_TYPE = re.compile(r"([\w.]+) = :type\b")
_NEWEST_FIRST = re.compile(r"ORDER BY ([\w.]+) DESC\nLIMIT :limit")
_IN_TIME = "AND {} IN (SELECT t.seq FROM jobs t WHERE t.id >= :since AND t.id < :until)\n"
_IN_LONG_TIME = "AND EXISTS (SELECT 1 FROM jobs t WHERE t.seq = {} AND t.id >= :since AND t.id < :until)\n"
_FEW = 20_000  # jobs of a time range: up to this many are looked up first; in a larger range each candidate is checked
_FOR_REASON = """AND EXISTS (
    SELECT 1 FROM finished e WHERE e.seq = {} AND e.outcome = 2 AND :reason =
        substr(coalesce(e.error, ''), 1, min(201, coalesce(nullif(instr(e.error, char(10)), 0), 201),
            coalesce(nullif(instr(e.error, ' (attempt '), 0), 201)) - 1))
"""  # same rule as overview.reason_of
_LAST_ID = "ffffffff"
_BY_STATUS = {
    None: "pick_any",
    Status.QUEUED: "pick_queued",
    Status.PROCESSING: "pick_processing",
    Status.SUCCEEDED: "pick_succeeded",
    Status.FAILED: "pick_dead",
    Status.CANCELLED: "pick_dead",
}
_OF_COMPANY = {
    None: "pick_of_company",
    Status.QUEUED: "pick_queued_of_company",
    Status.PROCESSING: "pick_processing",  # few jobs run at a time, in all companies
    Status.SUCCEEDED: "pick_finished_of_company",
    Status.FAILED: "pick_finished_of_company",
    Status.CANCELLED: "pick_finished_of_company",
}


def get(connection: apsw.Connection, job_id: JobId) -> JobRecord | None:
    if not is_uuid(job_id):
        return None
    found = run(connection, "get", {"job_id": job_id.lower()})
    return job_record(found[0]) if found else None


def page(connection: apsw.Connection, where: JobFilter, limit: int, cursor: str | None) -> Page:
    """Return jobs, newest first. The cursor is the last job's id: its seq would reveal how many jobs others have."""
    seqs = _pick(connection, where, limit + 1, _NEWEST if cursor is None else _seq_after(connection, cursor))
    rows = run(connection, "records", {"seqs": json_text(seqs[:limit])})
    jobs = [job_record(row) for row in rows]
    return Page(jobs, jobs[-1].id if len(seqs) > limit and jobs else None)


def count(connection: apsw.Connection, where: JobFilter, at_most: int) -> int:
    return len(_pick(connection, where, at_most))


def cancel(connection: apsw.Connection, now: int, job_id: JobId) -> CancelResult:
    if not is_uuid(job_id):
        return CancelResult.NOT_FOUND
    asked = {"job_id": job_id.lower()}
    ready = run(connection, "cancel_ready", asked)
    delayed = run(connection, "cancel_delayed", asked)
    for seq, lease, attempt, deaths, available_at in (*ready, *delayed):
        error = "cancelled before it started"
        ending = (seq, int(Outcome.CANCELLED), lease, attempt, deaths, available_at, None, now, None, error)
        run(connection, "finish", ending)
        run(connection, "release_key", {**asked, "seq": seq})
        ((queue, type_name),) = run(connection, "kind", {"seq": seq})
        change = counters.Change(alive=-1, delayed=-len(delayed), cancelled=1)
        counters.write(connection, now, {(queue, type_name): change})
        return CancelResult.CANCELLED
    if run(connection, "request_cancel", {**asked, "now": now}):
        return CancelResult.REQUESTED
    return CancelResult.ALREADY_FINAL if value(connection, "job_exists", asked) else CancelResult.NOT_FOUND


def retry(connection: apsw.Connection, now: int, where: JobFilter, limit: int) -> Retried:
    """Queue failed or cancelled jobs again, oldest first, unless another job holds their key; per key the newest."""
    dead = _dead(connection, where, limit)
    kept = {
        job_id
        for _, job_id, key, releases_key, *_ in reversed(dead)
        if key is not None and not _retake_key(connection, now, key, job_id, bool(releases_key))
    }
    retried: list[JobId] = []
    conflicts: list[JobId] = []
    seqs = []
    waiting = []
    changes = counters.Counters()
    for seq, job_id, _, _, lease, error, queue, type_name, outcome in dead:
        if job_id in kept:
            conflicts.append(job_id)
            continue
        retried.append(job_id)
        seqs.append(seq)
        _gone(changes[queue, type_name], outcome)
        changes[queue, type_name].alive += 1
        waiting.append(
            {
                "seq": seq,
                "lease": lease_after_retry(lease),
                "attempt": 0,
                "deaths": 0,
                "available_at": now,
                "now": now,
                "error": error,
            }
        )
    run(connection, "remove_finished", {"seqs": json_text(seqs)})
    run_each(connection, "wait_ready", waiting)
    run(connection, "resolve_failures", {"now": now, "job_ids": json_text(retried)})
    counters.write(connection, now, changes)
    return Retried(retried, conflicts)


def discard(connection: apsw.Connection, now: int, where: JobFilter, limit: int) -> list[JobId]:
    dead = _dead(connection, where, limit)
    run(connection, "remove_keys_of", {"seqs": json_text([row[0] for row in dead])})
    changes = counters.Counters()
    for *_, queue, type_name, outcome in dead:
        _gone(changes[queue, type_name], outcome)
    remove(connection, [row[0] for row in dead])
    counters.write(connection, now, changes)
    return [row[1] for row in dead]


def _gone(change: counters.Change, outcome: int) -> None:
    """Subtract one job of this outcome."""
    change.succeeded -= outcome == Outcome.SUCCEEDED
    change.failed -= outcome == Outcome.FAILED
    change.cancelled -= outcome == Outcome.CANCELLED


def remove(connection: apsw.Connection, seqs: list[int]) -> list[tuple[str, str]]:
    """Remove finished jobs; return the queue and type of each."""
    gone = {"seqs": json_text(seqs)}
    run(connection, "remove_finished", gone)
    return [(queue, type_name) for queue, type_name in run(connection, "remove_jobs", gone)]


def prune(connection: apsw.Connection, now: int, seqs: list[int], outcome: int) -> None:
    """Remove expired jobs of this outcome, and update the counters."""
    changes = counters.Counters()
    for kind in remove(connection, seqs):
        _gone(changes[kind], outcome)
    counters.write(connection, now, changes)


def queues(connection: apsw.Connection, now: int) -> list[QueueRecord]:
    return [queue_record(row, now) for row in run(connection, "queues", {"now": now})]


def workers(connection: apsw.Connection) -> list[WorkerRecord]:
    return [worker_record(row) for row in run(connection, "workers")]


def _retake_key(connection: apsw.Connection, now: int, key: str, job_id: JobId, releases_key: bool) -> bool:
    """Return whether the job may run under its key; takes the key again if it was released when the job ended."""
    holder = value(connection, "live_key_holder", {"key": key, "now": now})
    if holder is None and releases_key:
        run(connection, "take_key", {"key": key, "job_id": job_id, "expires_at": None, "now": now})
    return holder is None or holder == job_id


def _dead(connection: apsw.Connection, where: JobFilter, limit: int) -> list[tuple[Any, ...]]:
    """Return failed or cancelled jobs as (seq, id, unique_key, releases_key, lease, error, queue, type, outcome)."""
    if where.status is not None and where.status not in _DEAD:
        return []
    if where.ids is None:
        name = "pick_dead" if where.company_id is None else "pick_finished_of_company"
        seqs = _run_pick(connection, name, where, limit, _NEWEST)
    else:
        seqs = _pick(connection, where, len(where.ids))
    return run(connection, "dead_jobs", {"seqs": json_text(seqs)})[:limit]


def _pick(connection: apsw.Connection, where: JobFilter, limit: int, before: int = _NEWEST) -> list[int]:
    """Return the seqs of the newest jobs that match, with the most selective statement."""
    if where.ids is not None:
        return _run_pick(connection, "pick_ids", where, limit, before)
    ways = _BY_STATUS if where.company_id is None else _OF_COMPANY
    return _run_pick(connection, ways[where.status], where, limit, before)


def _run_pick(connection: apsw.Connection, name: str, where: JobFilter, limit: int, before: int) -> list[int]:
    asked = {
        "before": before,
        "limit": limit,
        "status": where.status and where.status.value,
        "outcome": where.status and _OUTCOMES.get(where.status),
        "type": where.type or where.type_prefix,
        "queue": where.queue,
        "company_id": where.company_id,
        "ids": None if where.ids is None else json_text([id.lower() for id in where.ids if is_uuid(id)]),
        "since": "" if where.since is None else first_id(where.since),
        "until": _LAST_ID if where.until is None else first_id(where.until),
        "reason": storable(where.reason),
    }
    more = _FOR_REASON if where.reason is not None else ""
    if where.since is not None or where.until is not None:
        many = value(connection, "jobs_in_time", asked | {"at_most": _FEW + 1}) > _FEW
        more += _IN_LONG_TIME if many else _IN_TIME
    found = of_type(name, where)
    if more:
        found = _NEWEST_FIRST.sub(lambda match: more.format(match[1], match[1]) + match[0], found)
    return [seq for (seq,) in connection.execute(found, asked)]


def of_type(name: str, where: JobFilter) -> str:
    """Return the statement, for one type or for all types with the filter's prefix."""
    found = SQL[name]
    return found if where.type_prefix is None else _OF_TYPE.sub(r"substr(\1, 1, length(:type)) = :type", found)


def _seq_after(connection: apsw.Connection, cursor: str) -> int:
    if not is_uuid(cursor):
        raise ValueError(f"{cursor[:40]!r} is not a cursor of this list: omit it to start with the first page")
    return int(value(connection, "seq_after", {"job_id": cursor.lower()}) or 0)
