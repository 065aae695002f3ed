"""The error of a job whose unique key another job holds."""

from __future__ import annotations

from rowlock.errors import DuplicateJob
from rowlock.storage.records import NewJob, Receipt


def duplicate(job: NewJob, receipt: Receipt) -> DuplicateJob:
    """Returns the error for this job, given the receipt that names the holder of its key."""
    if receipt.removed:
        reason = "used the same unique key, has ended and was pruned"
        advice = "use another key to run it again"
    else:
        reason = "with the same unique key already exists"
        advice = "wait for it, retry it if it failed or was cancelled, or use another key"
    return DuplicateJob(
        f"{job.type}: job {receipt.job_id} {reason}; nothing was enqueued: {advice}",
        existing_job_id=receipt.job_id,
        removed=receipt.removed,
    )
