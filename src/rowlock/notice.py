"""The job that tells staff of jobs that died: declared like any other, where the settings name someone to tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.jobs.job import Job
from rowlock.jobs.policy import Backoff, Unique
from rowlock.jobs.watch import NOTICE_QUEUE, NOTICE_TYPE
from rowlock.observe.guidance import OtherSide
from rowlock.observe.notices import Notifier, check_targets
from rowlock.storage.records import OnConflict

if TYPE_CHECKING:
    from rowlock.app import Rowlock

_DEATHS_MAX = 100_000  # in one message


def other_sides(app: Rowlock) -> dict[str, OtherSide]:
    """The systems that jobs of some types call, by type."""
    return {
        operation.type: OtherSide(hub.name, hub.scopes_url)
        for hub in app.integrations.values()
        for operation in hub.operations.values()
    }


def declare_notices(app: Rowlock) -> None:
    """Check the targets, and have deaths told to them."""
    s = app.settings
    webhooks, targets = s.webhook_urls.split(), s.notify_targets.split()
    check_targets(targets, webhooks, s.webhook_secret, allow_private=s.webhook_allow_private)
    notifier = Notifier(targets, webhooks, s.webhook_secret, allow_private=s.webhook_allow_private, redact=app.redact)

    # Again and again, for weeks: who is told of deaths must not be deaf because a mail server was.
    @app.job(
        NOTICE_TYPE,
        queue=NOTICE_QUEUE,
        retry=Backoff(1_000, base_seconds=15, factor=2, max_seconds=3_600),
        unique=Unique.window(s.notify_seconds, key=NOTICE_TYPE, on_conflict=OnConflict.RETURN_EXISTING),
    )
    async def notice(job: Job) -> dict[str, Any]:
        """Tell staff of the jobs that have died since the last message."""
        deaths = await app.store.say_deaths(job.id, _DEATHS_MAX)
        if deaths:
            await notifier.send(job.id, deaths, others=other_sides(app))
            app.engine.measures.add("notice", {"outcome": "sent"})
        return {"deaths": sum(group.count for group in deaths)}
