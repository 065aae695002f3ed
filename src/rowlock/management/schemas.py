"""The JSON objects of Rowlock, one function each; the same over HTTP and with `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rowlock.imports.field_help import accepts
from rowlock.imports.formats import dump_formats
from rowlock.imports.importer import ImportType
from rowlock.imports.load.stopped import STOPPED, corrected, groups_of
from rowlock.jobs.payload import loads
from rowlock.observe.guidance import IMPORT_JOB, OtherSide, about_job
from rowlock.observe.redaction import Redactor
from rowlock.storage.access import JobChange, TokenRecord
from rowlock.storage.imports import ChunkRecord, Counts, ErrorRow, ImportRecord
from rowlock.storage.overview import MINUTE, History, Running
from rowlock.storage.records import JobRecord, QueueRecord, Status, WorkerRecord
from rowlock.storage.reliability import FailureRecord, RunRecord
from rowlock.sync.integration import Integration

Shape = dict[str, Any]


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, with milliseconds and Z."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def job_shape(job: JobRecord, redact: Redactor | None, other: OtherSide | None = None) -> Shape:
    """A job, its secrets redacted unless `redact` is None. `other` is the external system that it calls, if any."""
    dead = job.status is Status.FAILED
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "status": job.status.value,
        "payload": _data(job.payload, redact),
        "priority": job.priority,
        "attempts": job.attempts,
        "maxAttempts": job.max_attempts,
        "deaths": job.deaths,
        "lease": job.lease,
        "visibilityTimeoutMs": job.visibility_timeout_ms,
        "availableAt": iso(job.available_at),
        "lockedAt": iso(job.locked_at),
        "lockOwner": job.lock_owner,
        "createdAt": iso(job.created_at),
        "startedAt": iso(job.started_at),
        "finishedAt": iso(job.finished_at),
        "updatedAt": iso(job.updated_at),
        "progress": job.progress,
        "message": _text(job.message, redact),
        "cancelRequested": job.cancel_requested,
        "result": _data(job.result, redact),
        "error": _text(job.error, redact),
        "guidance": about_job(job.id, job.error or "", other, _import_of(job)) if dead else [],
        "companyId": job.company_id,
        "limitKey": job.limit_key,
        "uniqueKey": None if job.unique_key is None else job.unique_key.replace("\x1f", "/"),
        "trace": job.trace,
    }


def change_shape(change: JobChange, redact: Redactor) -> Shape:
    """A job in an event: its state, without payload and result."""
    return {
        "id": change.id,
        "type": change.type,
        "queue": change.queue,
        "status": change.status.value,
        "attempts": change.attempts,
        "maxAttempts": change.max_attempts,
        "lease": change.lease,
        "progress": change.progress,
        "message": _text(change.message, redact),
        "error": _text(change.error, redact),
        "companyId": change.company_id,
        "changedAt": iso(change.changed_at),
    }


def failure_shape(failure: FailureRecord, redact: Redactor) -> Shape:
    return {
        "id": failure.id,
        "jobId": failure.job_id,
        "jobName": failure.job_name,
        "queueName": failure.queue_name,
        "companyId": failure.company_id,
        "payload": _data(failure.payload, redact),
        "attempts": failure.attempts,
        "maxAttempts": failure.max_attempts,
        "isFinalAttempt": failure.is_final_attempt,
        "failedReason": redact.message(failure.failed_reason),
        "stackTrace": redact.stack(failure.stack_trace),
        "firstFailedAt": iso(failure.first_failed_at),
        "occurrences": failure.occurrences,
        "lastFailedAt": iso(failure.last_failed_at or failure.first_failed_at),
        "resolvedAt": iso(failure.resolved_at),
        "startedAt": iso(failure.started_at),
        "lockOwner": failure.owner,
    }


def queue_shape(queue: QueueRecord) -> Shape:
    return {
        "name": queue.name,
        "paused": queue.paused,
        "ready": queue.ready,
        "delayed": queue.delayed,
        "processing": queue.processing,
        "oldestReadySeconds": queue.oldest_ready_seconds,
    }


def run_shape(run: RunRecord, redact: Redactor) -> Shape:
    return {
        "name": run.name,
        "tick": iso(run.tick),
        "jobId": run.job_id,
        "status": run.status.value,
        "enqueuedAt": iso(run.enqueued_at),
        "startedAt": iso(run.started_at),
        "endedAt": iso(run.ended_at),
        "error": _text(run.error, redact),
    }


def worker_shape(worker: WorkerRecord, now: datetime, visibility_ms: int) -> Shape:
    return {
        "id": worker.id,
        "name": worker.name,
        "queues": list(worker.queues),
        "startedAt": iso(worker.started_at),
        "seenAt": iso(worker.seen_at),
        "alive": (now - worker.seen_at).total_seconds() * 1000 <= visibility_ms,
    }


def running_shape(job: Running, redact: Redactor) -> Shape:
    """A running job, without its payload."""
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "companyId": job.company_id,
        "attempt": job.attempt,
        "startedAt": iso(job.started_at),
        "progress": job.progress,
        "message": _text(job.message, redact),
    }


def history_shape(history: History, minutes: int, queues: Iterable[str]) -> Shape:
    """The last `minutes` of these queues and of all others with activity, the oldest minute first."""
    times = [history.now - MINUTE * back for back in reversed(range(minutes))]
    happened = {(each.queue, each.minute): each for each in history.minutes}
    names = {*queues, *(queue for queue, _ in happened), *(queue for lags in history.lags.values() for queue in lags)}

    def told(name: str) -> Shape:
        found = [happened.get((name, time)) for time in times]
        return {
            "succeeded": [each.succeeded if each else 0 for each in found],
            "failed": [each.failed if each else 0 for each in found],
            "failedAttempts": [each.failures if each else 0 for each in found],
            "lagSeconds": [history.lags[time].get(name, 0.0) if time in history.lags else None for time in times],
        }

    return {"minutes": [iso(time) for time in times], "queues": {name: told(name) for name in sorted(names)}}


def token_shape(token: TokenRecord) -> Shape:
    """A token, without its secret, which is not stored."""
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "companyId": token.company_id,
        "createdAt": iso(token.created_at),
        "expiresAt": iso(token.expires_at),
        "lastUsedAt": iso(token.last_used_at),
        "revokedAt": iso(token.revoked_at),
    }


def _import_message(record: ImportRecord) -> str | None:
    """Return the import's message, or how many of its chunks are done."""
    if record.message is None and record.total_chunks is not None and not record.status.final:
        return f"loading: {record.completed_chunks} of {record.total_chunks} chunks are done"
    return record.message


def _error(record: ImportRecord, redact: Redactor) -> Any:
    """Return why the import failed, without the part that the summary and the list of errors show."""
    found = _data(record.error, redact)
    if not isinstance(found, dict):
        return found
    said = {"message": redact.message(found["message"])} if isinstance(found.get("message"), str) else {}
    return {name: value for name, value in found.items() if name != STOPPED} | said


def import_shape(
    record: ImportRecord, redact: Redactor, chunks: Sequence[ChunkRecord] = (), errors: Sequence[Shape] = ()
) -> Shape:
    """An import; `errorGroups` has the errors of these chunks and of the chunk that stopped the import."""
    options = loads(record.options)
    groups = Counter[tuple[str | None, str]]()
    for chunk in chunks:
        for group in chunk.groups:
            groups[group.column, group.code] += group.count
    for group in groups_of(record):
        groups[group.column, group.code] += group.count
    return {
        "id": record.id,
        "jobId": record.id,
        "type": record.type,
        "status": record.status.value,
        "progress": record.progress,
        "message": _text(_import_message(record), redact),
        "fileName": record.file_name,
        "csvPath": record.path,
        "sha256": record.sha256,
        "sizeBytes": record.size_bytes,
        "companyId": record.company_id,
        "projectId": record.project_id,
        "createdByUserId": record.user_id,
        "dryRun": bool(options.get("dryRun")),
        "sheetName": options.get("sheet"),
        "totalChunks": record.total_chunks,
        "completedChunks": record.completed_chunks,
        "createdAt": iso(record.created_at),
        "startedAt": iso(record.started_at),
        "finishedAt": iso(record.finished_at),
        "updatedAt": iso(record.updated_at),
        "metaJson": loads(record.meta),
        "resultJson": _data(record.result, redact),
        "errorJson": _error(record, redact),
        "summary": _counts(record.counts)
        | {
            "errorCount": record.error_count,
            **corrected(record),
            "errors": list(errors),
            "errorGroups": [{"column": column, "code": code, "count": n} for (column, code), n in groups.most_common()],
        },
    }


def import_change_shape(record: ImportRecord, redact: Redactor) -> Shape:
    """An import in an event: its progress, and the counts of its rows so far."""
    return {
        "id": record.id,
        "type": record.type,
        "status": record.status.value,
        "progress": record.progress,
        "message": _text(_import_message(record), redact),
        "fileName": record.file_name,
        "companyId": record.company_id,
        "totalChunks": record.total_chunks,
        "completedChunks": record.completed_chunks,
        "summary": _counts(record.counts) | {"errorCount": record.error_count} | corrected(record),
        "changedAt": iso(record.updated_at),
    }


def _import_of(job: JobRecord) -> str | None:
    """Return the id of the import that a job is a part of, or None."""
    found = loads(job.payload).get("importJobId") if job.type == IMPORT_JOB else None
    return found if isinstance(found, str) else None


def chunk_shape(chunk: ChunkRecord, *, failed: bool = False) -> Shape:
    """A chunk, with status failed if its job is a dead letter; index -1 has the rows that the reader refused."""
    return {
        "index": chunk.index,
        "status": "failed" if failed else chunk.status.value,
        "jobId": chunk.job_id,
        **_counts(chunk.counts),
        "finishedAt": iso(chunk.finished_at),
    }


def _counts(counts: Counts) -> Shape:
    return {
        "totalRows": counts.rows,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "duplicates": counts.duplicate,
        "failed": counts.invalid,
    }


def error_shapes(rows: Sequence[ErrorRow], redact: Redactor) -> list[Shape]:
    """The errors of these rows, in one list."""
    return [
        {
            "row": error.row,
            "column": error.column,
            "code": error.code,
            "value": error.value,
            "reason": redact.text(error.reason),
        }
        for row in rows
        for error in row.errors
    ]


def import_type_shape(declared: ImportType) -> Shape:
    """An import type: the columns and formats of its files, and where their rows go."""
    return {
        "name": declared.name,
        "about": declared.about,
        "mode": declared.mode.value,
        "policy": declared.policy.value,
        "into": declared.into,
        "key": list(declared.key),
        "queue": declared.queue,
        "companyRequired": declared.company is not None and declared.importer.default_company is None,
        "columns": [
            {
                "name": field.name,
                "headers": list(field.headers),
                "kind": field.kind.value,
                "required": field.required,
                "nullable": field.nullable,
                "choices": list(field.choices),
                "secret": field.secret,
                "formats": dump_formats(field.formats),
                "accepts": accepts(field),
            }
            for field in declared.fields
        ],
    }


def integration_shape(hub: Integration) -> Shape:
    """An integration with its operations, without secrets."""
    return {
        "name": hub.name,
        "enabled": hub.disabled is None,
        "why": hub.disabled,
        "queues": list(hub.queues),
        "scopesUrl": hub.scopes_url,
        "operations": [
            {
                "name": operation.name,
                "type": operation.type,
                "enabled": operation.enabled,
                "priority": operation.priority,
                "fields": sorted(operation.names),
                "key": operation.key if isinstance(operation.key, str) else None,
                "about": operation.about if isinstance(operation.about, str) else None,
                "batch": operation.batch,
            }
            for operation in hub.operations.values()
        ],
    }


def monitor_shape(found: Mapping[str, Any], redact: Redactor) -> Shape:
    """The state of an integration, with ISO 8601 times and redacted errors."""
    failures = [
        each | {"error": _text(each["error"], redact), "nextRetryAt": iso(each["nextRetryAt"])}
        for each in found["failures"]
    ]
    limits = [each | {"restsUntil": iso(each["restsUntil"])} for each in found["limits"]]
    return {**found, "failures": failures, "limits": limits}


def _data(text: str | None, redact: Redactor | None) -> Any:
    value = None if text is None else loads(text)
    return value if redact is None else redact.value(value)


def _text(text: str | None, redact: Redactor | None) -> str | None:
    return text if text is None or redact is None else redact.message(text)
