"""The health of a queue in one object, from counters that the store keeps."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rowlock.settings import Settings
from rowlock.storage.contract import Store

_HOUR_SECONDS = 3_600
_DAY_SECONDS = 24 * _HOUR_SECONDS
_TOP = 5


async def failures(store: Store, queue: str | None = None) -> dict[str, Any]:
    """Failed attempts of the last hour and day, and which jobs fail most, of one queue or of all."""
    hour = [a for a in await store.activity(_HOUR_SECONDS) if queue in (None, a.queue)]
    day = [a for a in await store.activity(_DAY_SECONDS) if queue in (None, a.queue)]
    worst: Counter[str] = Counter()
    for activity in day:
        worst[activity.type] += activity.failures
    top = [{"jobName": name, "count": count} for name, count in worst.most_common(_TOP) if count]
    return {
        "failedLastHour": sum(activity.failures for activity in hour),
        "failedLast24h": sum(activity.failures for activity in day),
        "topFailedJobs": top,
    }


async def queue_health(store: Store, settings: Settings, queue: str) -> dict[str, Any]:
    """Return the health of one queue, as GET /api/admin/queue/health returns it."""
    found = next((record for record in await store.queues() if record.name == queue), None)
    mine = [total for total in await store.totals() if total.queue == queue]
    failed = await failures(store, queue)
    oldest = None if found is None else found.oldest_ready_seconds
    return {
        "queueName": queue,
        "resilientMode": settings.resilient,
        "counts": {
            "waiting": found.ready if found else 0,
            "active": found.processing if found else 0,
            "delayed": found.delayed if found else 0,
            "failed": sum(total.failed for total in mine),
            "completed": sum(total.succeeded for total in mine),
        },
        "oldestWaitingAgeSec": None if oldest is None else round(oldest),
        "failedLastHour": failed["failedLastHour"],
        "topFailedJobs": failed["topFailedJobs"],
        "dlq": {
            "failedLastHour": failed["failedLastHour"],
            "failedLast24h": failed["failedLast24h"],
            "retentionDays": _whole(settings.keep_failure_days),
        },
    }


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number
