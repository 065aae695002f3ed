"""The job that notifies staff about dead letters; declared if the settings name a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.jobs.job import Job
from rowlock.jobs.policy import Backoff, Unique
from rowlock.jobs.worker.failure_watch import NOTIFICATION_QUEUE, NOTIFICATION_TYPE
from rowlock.observe.guidance import OtherSide
from rowlock.storage.records import OnConflict

if TYPE_CHECKING:
    from rowlock.app import Rowlock

_DEATHS_MAX = 100_000  # dead letters in one message


def other_sides(app: Rowlock) -> dict[str, OtherSide]:
    """Return the external service of each operation, by job type."""
    return {
        operation.type: OtherSide(hub.name, hub.scopes_url)
        for hub in app.integrations.values()
        for operation in hub.operations.values()
    }


def declare_notices(app: Rowlock) -> None:
    """Check the notification targets and declare the job that sends dead letters to them."""
    from rowlock.observe.notifications import Notifier, check_targets

    s = app.settings
    webhooks, targets = s.webhook_urls.split(), s.notify_targets.split()
    check_targets(targets, webhooks, s.webhook_secret, allow_private=s.webhook_allow_private)
    notifier = Notifier(targets, webhooks, s.webhook_secret, allow_private=s.webhook_allow_private, redact=app.redact)

    # Retried for weeks: an outage of a mail server must not lose a notification.
    @app.job(
        NOTIFICATION_TYPE,
        queue=NOTIFICATION_QUEUE,
        retry=Backoff(1_000, base_seconds=15, factor=2, max_seconds=3_600),
        unique=Unique.window(s.notify_seconds, key=NOTIFICATION_TYPE, on_conflict=OnConflict.RETURN_EXISTING),
    )
    async def notice(job: Job) -> dict[str, Any]:
        """Notify staff of the dead letters since the last message."""
        deaths = await app.store.assign_notification(job.id, _DEATHS_MAX)
        if deaths:
            await notifier.send(job.id, deaths, others=other_sides(app))
            app.engine.measures.add("notice", {"outcome": "sent"})
        return {"deaths": sum(group.count for group in deaths)}
