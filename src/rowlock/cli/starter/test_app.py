"""Tests of the application: its jobs run on an empty SQLite file, retries and delays included, without waiting."""

import asyncio
import csv
from pathlib import Path

import pytest

from app import Contact, app
from rowlock.testing import FakeClock, assert_enqueued, drain


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Put the application on a database of the test's own, with a clock that only the test moves."""
    clock = FakeClock()
    settings = app.settings.model_copy(update={"database_url": f"sqlite:///{tmp_path}/test.db"})
    monkeypatch.setattr(app, "settings", settings)
    monkeypatch.setattr(app, "clock", clock)
    return clock


def test_an_email_that_fails_is_sent_again(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    async def deliver(to: str, subject: str) -> None:
        sent.append(to)
        if len(sent) == 1:
            raise ConnectionError("the mail server is down")

    monkeypatch.setattr("app.deliver", deliver)

    async def scenario() -> None:
        async with app:
            await app.migrate()
            await app.enqueue("email.send", {"to": "ada@example.com", "subject": "Hello"})
            [failed] = await drain(app, raise_failures=False)
            assert failed.status == "queued"
            clock.advance(seconds=2)
            [retried] = await drain(app)
            assert retried.status == "succeeded"

    asyncio.run(scenario())
    assert sent == ["ada@example.com", "ada@example.com"]


def test_the_digest_enqueues_an_email(clock: FakeClock) -> None:
    async def scenario() -> None:
        async with app:
            await app.migrate()
            await app.enqueue("digest.send")
            await drain(app)
            assert_enqueued(app, "email.send", {"to": "team@example.com"}, status="succeeded")

    asyncio.run(scenario())


def test_every_row_of_the_sample_is_a_contact() -> None:
    with Path(__file__).with_name("contacts.csv").open(encoding="utf-8", newline="") as file:
        contacts = [Contact.model_validate(row) for row in csv.DictReader(file)]
    assert len(contacts) == 3
