"""Settle attempts, by their owner or by rescue after the lease expired; progress and heartbeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import apsw

from rowlock.ids import uuid7
from rowlock.storage.records import (
    Failed,
    Held,
    JobId,
    Outcome,
    Progress,
    Rescued,
    Settlement,
    Status,
    Worker,
    WorkerId,
)
from rowlock.storage.sqlite.callers import ApswCaller
from rowlock.storage.sqlite.jobs.counters import Counters
from rowlock.storage.sqlite.rows import Row, duration_micros, json_text, storable
from rowlock.storage.sqlite.sql import run, run_each

_GIVEN_BACK = (Outcome.RELEASE, Outcome.SUSPECT)
_FAILURES = (Outcome.FAILED, Outcome.RETRY, Outcome.CRASH, Outcome.FATAL)
_DEATHS = (Outcome.CRASH, Outcome.SUSPECT, Outcome.FATAL)
_STATUS = {Outcome.SUCCEEDED: Status.SUCCEEDED, Outcome.FAILED: Status.FAILED, Outcome.CANCELLED: Status.CANCELLED}


def settle(connection: apsw.Connection, now: int, owner: WorkerId, settlements: Sequence[Settlement]) -> list[JobId]:
    """End these attempts; return the jobs whose lease was lost, which are unchanged."""
    counters = Counters()
    lost = _settle(connection, now, owner, settlements, counters)
    counters.write(ApswCaller(connection), now)
    return lost


def _settle(
    connection: apsw.Connection, now: int, owner: WorkerId, settlements: Sequence[Settlement], counters: Counters
) -> list[JobId]:
    by_lease: dict[int, dict[JobId, Settlement]] = defaultdict(dict)
    lost = []
    for settlement in settlements:
        batch = by_lease[settlement.lease]
        if settlement.job_id in batch:
            lost.append(settlement.job_id)  # settled twice: the first settlement ended the lease
        else:
            batch[settlement.job_id] = settlement
    # Nearly always all jobs have one lease number, so one statement checks job, lease and owner.
    for lease, batch in by_lease.items():
        ended = run(connection, "end_attempts", (apsw.carray(tuple(batch)), lease, owner))
        _place(connection, now, owner, [(row, batch.pop(row[0])) for row in ended], counters)
        lost.extend(batch)
    return lost


def _place(
    connection: apsw.Connection, now: int, owner: WorkerId, ended: Sequence[tuple[Row, Settlement]], counters: Counters
) -> None:
    """Move each job whose attempt has ended to finished, ready or delayed, as its outcome requires."""
    finished, keys, waiting, failures, unstarted = [], [], [], [], []
    for row, settlement in ended:
        job_id, seq, lease, attempt, deaths, releases_key, cancel_requested, limit_key, locked_at, available_at = row
        started_at = None if settlement.seconds is None else now - duration_micros(settlement.seconds)
        if started_at is None and limit_key:
            unstarted.append((limit_key, locked_at, seq, lease))
        outcome = settlement.outcome
        change = counters[settlement.queue, settlement.type]
        change.failures += outcome in _FAILURES
        attempt -= outcome in _GIVEN_BACK
        deaths += outcome in _DEATHS
        if outcome == Outcome.FATAL:
            outcome = Outcome.FAILED
        elif cancel_requested and outcome > Outcome.CANCELLED:
            outcome = Outcome.CANCELLED  # a job with a cancel request must not run again
        if outcome not in _GIVEN_BACK:  # a released attempt is not counted, nor is its time
            change.seconds += settlement.seconds or 0.0
        if (failure := settlement.failure) is not None:
            failures.append(
                {
                    "id": failure.id,
                    "seq": seq,
                    "payload": failure.payload,
                    "attempt": attempt,
                    "final": outcome == Outcome.FAILED,
                    "reason": storable(settlement.error) or "",
                    "stack": storable(failure.stack),
                    "now": now,
                    "started_at": started_at,
                    "owner": owner,
                }
            )
        if outcome <= Outcome.CANCELLED:
            change.alive -= 1
            change.succeeded += outcome == Outcome.SUCCEEDED
            change.failed += outcome == Outcome.FAILED
            change.cancelled += outcome == Outcome.CANCELLED
            finished.append(
                (
                    seq,
                    int(outcome),
                    lease,
                    attempt,
                    deaths,
                    available_at,
                    started_at,
                    now,
                    settlement.result,
                    storable(settlement.error),
                )
            )
            if releases_key:
                keys.append({"job_id": job_id, "seq": seq})
            continue
        delay = duration_micros(settlement.delay_seconds)
        change.delayed += delay > 0
        change.retries += outcome == Outcome.RETRY
        waiting.append(
            {
                "seq": seq,
                "lease": lease,
                "attempt": attempt,
                "deaths": deaths,
                # A job that did not start keeps its available_at.
                "available_at": available_at if started_at is None and delay <= 0 else now + max(0, delay),
                "now": now,
                "error": storable(settlement.error),
            }
        )
    run_each(connection, "finish", finished)
    run_each(connection, "record_failure", failures)
    run_each(connection, "release_key", keys)
    run_each(connection, "remove_start", unstarted)
    run_each(connection, "wait_ready", [job for job in waiting if job["available_at"] <= now])
    run_each(connection, "wait_delayed", [job for job in waiting if job["available_at"] > now])


def rescue(
    connection: apsw.Connection,
    now: int,
    limit: int,
    delay_seconds: Mapping[str, float],
    redact: Callable[[str], str],
) -> list[Rescued]:
    """End the attempts whose lease expired: each job is retried, failed or cancelled."""
    rescued = []
    counters = Counters()
    by_owner: dict[WorkerId, list[Settlement]] = defaultdict(list)
    for row in run(connection, "expired", {"now": now, "limit": limit}):
        job_id, type, queue, owner, attempt, max_attempts, lease, locked_at, cancel_requested, payload = row
        counters[queue, type].rescues += 1
        if cancel_requested:
            outcome = Outcome.CANCELLED
        elif attempt >= max_attempts:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.RETRY
        by_owner[owner].append(
            Settlement(
                job_id,
                lease,
                outcome,
                seconds=(now - locked_at) / 1e6,
                delay_seconds=delay_seconds.get(queue, 0.0),
                error=f"lease expired: its worker sends no heartbeats\nthe worker: {owner}",
                type=type,
                queue=queue,
                failure=None if cancel_requested else Failed(uuid7(), redact(payload), None),
            )
        )
        status = _STATUS.get(outcome, Status.QUEUED)
        rescued.append(Rescued(job_id, type, queue, owner, attempt, max_attempts, status))
    for owner, settlements in by_owner.items():
        _settle(connection, now, owner, settlements, counters)
    for change in counters.values():
        change.retries, change.seconds = 0, 0.0  # a rescue is no retry, and how long the handler ran is not known
    counters.write(ApswCaller(connection), now)
    return rescued


def progress(connection: apsw.Connection, now: int, owner: WorkerId, reports: Sequence[Progress]) -> list[JobId]:
    """Record progress of jobs whose lease this owner holds; return the jobs whose lease was lost."""
    rows = [(report.percent, storable(report.message), now, report.job_id, report.lease, owner) for report in reports]
    known = set(run_each(connection, "report_progress", rows))
    return [report.job_id for report in reports if (report.job_id, report.lease) not in known]


def beat(connection: apsw.Connection, now: int, workers: Sequence[Worker]) -> list[Held]:
    """Record a heartbeat of these workers, which renews all their leases; return the leases."""
    rows = [(w.id, w.name, json_text(w.queues), json_text(w.types), now, now) for w in workers]
    run_each(connection, "beat", rows)
    return held(connection, [worker.id for worker in workers])


def held(connection: apsw.Connection, owners: Sequence[WorkerId]) -> list[Held]:
    rows = run(connection, "held", {"owners": json_text(owners)})
    return [Held._make((*row[:6], bool(row[6]), *row[7:])) for row in rows]


def shortest_lease(connection: apsw.Connection, owners: Sequence[WorkerId]) -> int | None:
    """Return the shortest visibility timeout of these workers' leases, in milliseconds; None without leases."""
    ((shortest,),) = run(connection, "shortest_lease", {"owners": json_text(owners)})
    return None if shortest is None else int(shortest)
