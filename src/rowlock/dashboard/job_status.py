"""The state of a job in words: what it does now, and what happens next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from rowlock.management.schemas import Shape

LINE_LENGTH_MAX = 200


class Standing(NamedTuple):
    """A sentence with a time in its middle."""

    before: str
    at: str | None = None
    after: str = ""


def standing(job: Shape, now: datetime, workers: Mapping[str, str] = MappingProxyType({})) -> Standing:
    """Return the state of a job as a sentence; `workers` has names of workers by id."""
    tries = f"attempt {job['attempts']:,} of {job['maxAttempts']:,}"
    match job["status"]:
        case "queued":
            return _waiting(job, now, tries)
        case "processing":
            return _running(job, now, tries, workers)
        case "succeeded":
            return Standing("Succeeded", job["finishedAt"], f"at {tries}.")
        case "failed":
            many = "1 attempt" if job["attempts"] == 1 else f"{job['attempts']:,} attempts"
            return Standing("Failed", job["finishedAt"], f"after {many}. It stays here until you retry or discard it.")
        case _:
            return Standing("Cancelled", job["finishedAt"], "It will not run unless someone retries it.")


def _waiting(job: Shape, now: datetime, tries: str) -> Standing:
    at = job["availableAt"]
    later = moment(at) > now
    if job["attempts"]:
        if later:
            return Standing(f"A{tries[1:]} failed; the next one is due", at)
        return Standing(f"A{tries[1:]} failed; the next one starts as soon as a worker is free. Ready since", at)
    if later:
        return Standing("Scheduled: due", at)
    return Standing("Waits for a free worker. Ready since", at)


def _running(job: Shape, now: datetime, tries: str, workers: Mapping[str, str]) -> Standing:
    owner = "a worker"
    if job["lockOwner"]:
        owner = workers.get(job["lockOwner"]) or f"worker {short(job['lockOwner'])}"
    seen = job["lockedAt"]
    if seen and moment(seen) + timedelta(milliseconds=job["visibilityTimeoutMs"]) < now:
        return Standing(
            f"{owner} runs it and was last seen", seen, "If the worker does not return, another attempt starts."
        )
    if job["cancelRequested"]:
        return Standing("Cancellation requested; the handler stops at its next check. Started", job["startedAt"])
    return Standing("Running: started", job["startedAt"], f"on {owner}, {tries}.")


def says(job: Shape) -> str:
    """Return the first line of a job's last message or of its error."""
    if job["status"] in ("queued", "failed"):
        text = job["error"] or job["message"]
    else:
        text = job["message"] or (job["error"] if job["status"] == "cancelled" else None)
    return first_line(text)


def first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    line = lines[0] if lines else ""
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[: LINE_LENGTH_MAX - 1]}…"


def seconds_of(job: Shape) -> float | None:
    """Return the duration of the last attempt, or None if the job has not ended."""
    if not job["startedAt"] or not job["finishedAt"]:
        return None
    return max(0.0, (moment(job["finishedAt"]) - moment(job["startedAt"])).total_seconds())


def short(job_id: str) -> str:
    """Shorten an id to its start and end: ids of the same minute start alike."""
    return f"{job_id[:8]}…{job_id[-6:]}" if len(job_id) > 20 else job_id


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def can(job: Shape, now: datetime) -> dict[str, bool]:
    """Return which actions the job's state allows."""
    status = job["status"]
    return {
        "retry": status in ("failed", "cancelled"),
        "run_now": status == "queued" and moment(job["availableAt"]) > now,
        "cancel": status == "queued" or (status == "processing" and not job["cancelRequested"]),
        "discard": status == "failed",
    }
