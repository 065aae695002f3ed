"""Notifications: an outbox table. A separate reader sends its rows and marks them as sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from backoffice.application import CompanyId, Criticality, app
from backoffice.queries import add
from backoffice.tables import ensure_tables
from rowlock import Job


@app.job("sendNotifications", priority=Criticality.LOW.value)
async def send_notifications(
    job: Job,
    companyId: CompanyId,
    message: Annotated[str, Field(min_length=1, max_length=4_000)],
    channel: Literal["inApp", "email", "slack"] = "inApp",
    recipient: Annotated[str, Field(min_length=1, max_length=320)] | None = None,
) -> None:
    """Put one message into the outbox: once, however often the job is tried."""
    async with job.transaction() as tx:
        await ensure_tables(tx)
        created_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message_of = {"company_id": companyId, "channel": channel, "recipient": recipient, "message": message}
        await add(tx, "notifications", ["job_id"], job_id=job.id, **message_of, created_at=created_at)
        tx.result = {"channel": channel, "recipient": recipient}
