"""Converts jobs to documents and back: readable field names, payloads that come back byte for byte.

`payload` and `result` are real sub-documents, so that people can query them. If MongoDB cannot hold the JSON as one (a
key with a dot, a null character or a leading dollar sign, an integer beyond 64 bits, nesting beyond 90), the field is
the JSON text itself. If the sub-document does not reproduce the JSON byte for byte (spaces, 1e3, a repeated key), the
text is stored beside it, in `payloadText` and `resultText`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import orjson

from rowlock.storage.mongo.connection import Document
from rowlock.storage.mongo.dates import after, floor
from rowlock.storage.records import JobRecord, NewJob, Status

JOBS = "jobs"

READY, DELAYED, RUNNING, FINISHED = "ready", "delayed", "running", "finished"
"""Values of the field `state`: the `status` as the claim needs it."""

BY_ID = "_id_"
"""The hint for queries by id with more conditions: the planner may choose an index with thousands of other entries."""

NESTING_MAX = 90
_INT64 = range(-(2**63), 2**63)
_ODD = re.compile(r"[$.]|\\u00|\d{19}")


def job_document(job: NewJob, seq: int, now: datetime) -> Document:
    """Return the document of a new job."""
    available_at = now
    if job.available_at is not None:
        available_at = max(floor(job.available_at), now)
    elif job.delay_seconds > 0:
        available_at = after(now, job.delay_seconds)
    document: Document = {
        "_id": job.id,
        "seq": seq,
        "type": job.type,
        "queue": job.queue,
        "status": Status.QUEUED.value,
        "state": DELAYED if available_at > now else READY,
        "limitKey": job.limit_key or "",  # "": none
        "priority": job.priority,
        "attempts": 0,
        "maxAttempts": job.max_attempts,
        "deaths": 0,
        "lease": 0,
        "visibilityMs": job.visibility_ms,
        "createdAt": now,
        "availableAt": available_at,
        "updatedAt": now,
    }
    if job.company_id is not None:
        document["companyId"] = job.company_id
    if job.trace is not None:
        document["trace"] = job.trace
    if job.unique is not None:
        document["uniqueKey"] = job.unique.key
        if job.unique.while_active:
            document["releasesKey"] = True
    document.update(json_fields("payload", job.payload))
    return document


def job_record(document: Document, seen_at: datetime | None = None) -> JobRecord:
    """Return a complete document as a record; `seen_at`: the last heartbeat of the worker that runs the job."""
    find = document.get
    running = document["state"] == RUNNING
    locked_at = updated_at = None
    if running:
        locked_at = document["lockedAt"] if seen_at is None else max(document["lockedAt"], seen_at)
        updated_at = locked_at
    return JobRecord(
        id=document["_id"],
        type=document["type"],
        queue=document["queue"],
        status=Status(document["status"]),
        payload=json_text(document, "payload") or "{}",
        priority=document["priority"],
        attempts=document["attempts"],
        max_attempts=document["maxAttempts"],
        deaths=document["deaths"],
        lease=document["lease"],
        visibility_timeout_ms=document["visibilityMs"],
        created_at=document["createdAt"],
        available_at=document["availableAt"],
        updated_at=updated_at or document["updatedAt"],
        locked_at=locked_at,
        lock_owner=find("owner") if running else None,
        started_at=find("lockedAt" if running else "startedAt"),
        finished_at=find("finishedAt"),
        progress=find("progress") if running else None,
        message=find("message") if running else None,
        cancel_requested=running and bool(find("cancelRequested")),
        result=json_text(document, "result"),
        error=None if running else find("error"),
        company_id=find("companyId"),
        limit_key=find("limitKey") or None,
        unique_key=find("uniqueKey"),
        trace=find("trace"),
    )


def json_fields(name: str, text: str) -> Document:
    """Return the fields that store a JSON text under this name."""
    value, exact = _value(text)
    return {name: value} if exact else {name: value, f"{name}Text": text}


def json_text(document: Document, name: str) -> str | None:
    """Return the JSON text that `json_fields` stored, or None if there is none."""
    text: str | None = document.get(f"{name}Text")
    if text is None and name in document:
        text = orjson.dumps(document[name]).decode()
    return text


def storable(text: str | None) -> str | None:
    """Replace what UTF-8 cannot encode: an odd file name in an error must not lose the batch."""
    return text if text is None or text.isascii() else text.encode(errors="replace").decode()


def _value(text: str) -> tuple[Any, bool]:
    """Return what MongoDB can store of a JSON text, and whether that reproduces the text exactly."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text, False
    # Most texts are plain: their values need not be checked one by one.
    odd = _ODD.search(text) is not None or text.count("[") + text.count("{") > NESTING_MAX
    if odd and not _holds(value, 0):
        return text, False
    return value, orjson.dumps(value) == text.encode(errors="replace")


def _holds(value: Any, depth: int) -> bool:
    if depth > NESTING_MAX:
        return False
    match value:
        case dict():
            return all(
                "." not in key and "\0" not in key and not key.startswith("$") and _holds(inner, depth + 1)
                for key, inner in value.items()
            )
        case list():
            return all(_holds(inner, depth + 1) for inner in value)
        case int():
            return value in _INT64
    return True
