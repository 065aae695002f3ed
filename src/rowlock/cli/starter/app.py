"""A small application to start from: two jobs, a schedule and an importer. Change them into yours."""

import logging
from typing import Annotated

from pydantic import BaseModel, Field

from rowlock import Backoff, Job, Permanent, Rowlock

log = logging.getLogger(__name__)

app = Rowlock()  # on the database of DATABASE_URL (default: the file rowlock.db in the current folder)


@app.job("email.send", retry=Backoff(max_attempts=5, base_seconds=1, factor=2, max_seconds=60))
async def send_email(job: Job, to: str, subject: str) -> dict[str, str]:
    """Send one e-mail. If it raises, it runs again after 2, 4, 8 and 16 seconds, then it is a dead letter."""
    if "@" not in to:
        raise Permanent(f"{to} is not an e-mail address")  # a dead letter at once: trying again would not help
    await deliver(to, subject)
    return {"sentTo": to}


async def deliver(to: str, subject: str) -> None:
    """Call your mail service here."""
    log.info("to %s: %s", to, subject)


@app.job("digest.send")
async def send_digest(job: Job) -> dict[str, str]:
    """Enqueue the e-mail of the day."""
    enqueued = await app.enqueue("email.send", {"to": "team@example.com", "subject": "What happened yesterday"})
    return {"emailJob": enqueued.job_id}


app.schedule("daily-digest", "digest.send", cron="0 7 * * *", zone="UTC")


class Contact(BaseModel):
    """A row of contacts.csv, and of the table `contacts`, which the first import creates."""

    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$", max_length=254, description="an e-mail address")]
    name: Annotated[str, Field(min_length=1, max_length=120)]
    city: str | None = None


app.importer("contacts", row=Contact, key=["email"], into="contacts")
