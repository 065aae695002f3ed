"""The state of a job in words: what it does now, and what happens next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from rowlock.management.schemas.jobs import JobSchema

LINE_LENGTH_MAX = 200


class Standing(NamedTuple):
    """A sentence with a time in its middle."""

    before: str
    at: datetime | None = None
    after: str = ""


def standing(job: JobSchema, now: datetime, workers: Mapping[str, str] = MappingProxyType({})) -> Standing:
    """Return the state of a job as a sentence; `workers` has names of workers by id."""
    tries = f"attempt {job.attempts:,} of {job.max_attempts:,}"
    match job.status:
        case "queued":
            return _waiting(job, now, tries)
        case "processing":
            return _running(job, now, tries, workers)
        case "succeeded":
            return Standing("Succeeded", job.finished_at, f"at {tries}.")
        case "failed":
            many = "1 attempt" if job.attempts == 1 else f"{job.attempts:,} attempts"
            return Standing("Failed", job.finished_at, f"after {many}. It stays here until you retry or discard it.")
        case _:
            return Standing("Cancelled", job.finished_at, "It will not run unless someone retries it.")


def _waiting(job: JobSchema, now: datetime, tries: str) -> Standing:
    at = job.available_at
    later = at > now
    if job.attempts:
        if later:
            return Standing(f"A{tries[1:]} failed; the next one is due", at)
        return Standing(f"A{tries[1:]} failed; the next one starts as soon as a worker is free. Ready since", at)
    if later:
        return Standing("Scheduled: due", at)
    return Standing("Waits for a free worker. Ready since", at)


def _running(job: JobSchema, now: datetime, tries: str, workers: Mapping[str, str]) -> Standing:
    owner = "a worker"
    if job.lock_owner:
        owner = workers.get(job.lock_owner) or f"worker {short(job.lock_owner)}"
    seen = job.locked_at
    if seen and seen + timedelta(milliseconds=job.visibility_timeout_ms) < now:
        return Standing(
            f"{owner} runs it and was last seen", seen, "If the worker does not return, another attempt starts."
        )
    if job.cancel_requested:
        return Standing("Cancellation requested; the handler stops at its next check. Started", job.started_at)
    return Standing("Running: started", job.started_at, f"on {owner}, {tries}.")


def says(job: JobSchema) -> str:
    """Return the first line of a job's last message or of its error."""
    if job.status in ("queued", "failed"):
        text = job.error or job.message
    else:
        text = job.message or (job.error if job.status == "cancelled" else None)
    return first_line(text)


def first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    line = lines[0] if lines else ""
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[: LINE_LENGTH_MAX - 1]}…"


def seconds_of(job: JobSchema) -> float | None:
    """Return the duration of the last attempt, or None if the job has not ended."""
    if not job.started_at or not job.finished_at:
        return None
    return max(0.0, (job.finished_at - job.started_at).total_seconds())


def short(job_id: str) -> str:
    """Shorten an id to its start and end: ids of the same minute start alike."""
    return f"{job_id[:8]}…{job_id[-6:]}" if len(job_id) > 20 else job_id


def can(job: JobSchema, now: datetime) -> dict[str, bool]:
    """Return which actions the job's state allows."""
    status = job.status
    return {
        "retry": status in ("failed", "cancelled"),
        "run_now": status == "queued" and job.available_at > now,
        "cancel": status == "queued" or (status == "processing" and not job.cancel_requested),
        "discard": status == "failed",
    }
