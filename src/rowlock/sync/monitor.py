"""Counts, failures and call budget of an integration, for operators and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.storage.contract import Store
from rowlock.storage.records import JobRecord, Status
from rowlock.sync.rate_limit import keys_of

if TYPE_CHECKING:
    from rowlock.sync.integration import Integration

FAILURES_MAX = 20


async def stats(store: Store, integration: Integration, company_id: str | None) -> dict[str, int]:
    """Return the number of jobs by state."""
    return _counts(await store.sync_counts(integration.queues, company_id))


async def monitor(store: Store, integration: Integration, company_id: str | None) -> dict[str, Any]:
    """Return counts, latest failures, timings and limits. With a company, only its jobs, and no limits."""
    counts = await store.sync_counts(integration.queues, company_id)
    failures = await store.failing(integration.queues, FAILURES_MAX, company_id)
    return {
        "integration": integration.name,
        "enabled": integration.disabled is None,
        "why": integration.disabled,
        "counts": _counts(counts),
        "failures": [_failure(integration, job) for job in failures],
        "meanProcessingMs": counts.mean_ms,
        "lagSeconds": counts.lag_seconds,
        "limits": [] if company_id is not None else await _limits(store, integration),
    }


def _counts(counts: Any) -> dict[str, int]:
    return {
        "pending": counts.pending,
        "processing": counts.processing,
        "failed": counts.retrying,
        "dead": counts.dead,
        "completed24h": counts.completed_24h,
    }


def _failure(integration: Integration, job: JobRecord) -> dict[str, Any]:
    waiting = job.status is Status.QUEUED
    return {
        "jobId": job.id,
        "operation": job.type.removeprefix(f"{integration.name}."),
        "status": job.status.value,
        "error": job.error,
        "retryCount": max(0, job.attempts - 1) if job.status is Status.FAILED else job.attempts,
        "nextRetryAt": job.available_at if waiting else None,
    }


async def _limits(store: Store, integration: Integration) -> list[dict[str, Any]]:
    """Return the call budget of the account for jobs without a company; an empty list if there is no such account."""
    try:
        account = integration.accounts.key(None)
    except Exception:
        if not integration.accounts.several:
            raise
        return []  # the application's function only accepts a company
    keys = [limit.key for limit in keys_of(account, integration.limits)]
    return [
        {
            "name": limit.name,
            "count": limit.count,
            "perSeconds": limit.per_seconds,
            "group": limit.group,
            "inUse": budget.in_use,
            "restsUntil": budget.rests_until,
        }
        for limit, budget in zip(integration.limits, await store.call_budget(keys), strict=True)
    ]
