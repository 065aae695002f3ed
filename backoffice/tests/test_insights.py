"""Insights, notifications and the ping."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from office_rig import Office, drop_tables

import backoffice
from backoffice import insights
from backoffice.tables import TABLES, columns_of, key_of, one_at_a_time
from rowlock import Job, Status
from rowlock.storage.contract import Store
from rowlock.testing import JobsFailed, assert_enqueued, assert_not_enqueued, drain

DAY = "2026-06-30"


@pytest.mark.every_store
async def test_what_is_over_budget(office: Office) -> None:
    await office.budget(2026, 120_000)  # 60,000 until June
    await office.budget(2026, 120_000, "travel")
    await office.payable("1", 66_001, "2026-02-01", due_on="2027-01-01")
    await office.payable("2", 66_000, "2026-06-30", due_on="2027-01-01", category="travel")
    await office.payable("3", 1_000_000, "2026-07-01", due_on="2027-01-01", category="travel")  # not yet
    await office.payable("4", 5, "2026-03-01", due_on="2027-01-01", category="gifts")
    result = await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert result == {"date": DAY, "insights": 2, "budget": 2, "overdue": 0, "outlier": 0}
    found = await office.insights(DAY)
    assert found[("budget", "office")] == (
        "office: 660.01 since 2026-01-01 against 600.00 planned, 110%",
        {"actualCents": 66_001, "budgetCents": 60_000},
    )
    assert found[("budget", "gifts")][0] == "gifts: 0.05 since 2026-01-01 against no budget"


@pytest.mark.every_store
async def test_what_is_overdue(office: Office) -> None:
    await office.budget(2026, 100_000_000)
    await office.payable("1", 100, "2026-06-01", due_on="2026-06-29")
    await office.payable("2", 200, "2026-06-01", due_on="2026-05-31")  # 30 days
    await office.payable("3", 400, "2026-06-01", due_on="2026-05-30")  # 31
    await office.payable("4", 800, "2026-06-01", due_on="2026-04-01")  # 90
    await office.payable("5", 1_600, "2026-06-01", due_on="2026-03-31")  # 91
    await office.payable("6", 50, "2026-06-01", due_on="2026-06-01", vendor="Other", paid_on="2026-07-01")
    await office.payable("7", 9, "2026-06-01", due_on=DAY)  # today is not late
    await office.payable("8", 9, "2026-06-01", due_on="2026-06-02", paid_on=DAY)
    await office.payable("9", 9, "2026-06-01", due_on="2026-06-02", company_id="other")
    result = await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert result["overdue"] == 2
    found = await office.insights(DAY)
    message, figures = found[("overdue", "Paper & Co")]
    assert message == "Paper & Co: 5 payables overdue, 31.00, the oldest for 91 days"
    assert figures == {
        "count": 5,
        "cents": 3_100,
        "oldestDays": 91,
        "centsByDays": {"1-30": 300, "31-60": 400, "61-90": 800, "over 90": 1_600},
    }
    assert found[("overdue", "Other")][0] == "Other: 1 payable overdue, 0.50, the oldest for 29 days"


@pytest.mark.every_store
async def test_what_is_unusual(office: Office) -> None:
    await office.budget(2026, 100_000_000)
    for number, cents in enumerate([100, 101, 99, 102, 98, 100, 103, 97, 5_000]):
        await office.payable(f"A{number}", cents, "2026-05-01", due_on="2027-01-01")
    await office.payable("OLD", 9_000, "2025-06-30", due_on="2027-01-01")  # a year ago
    result = await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert result["outlier"] == 1
    message, figures = (await office.insights(DAY))[("outlier", "A8")]
    assert message.startswith("office: invoice A8 of Paper & Co over 50.00 is unusual (score ")
    assert figures["cents"] == 5_000


@pytest.mark.every_store
async def test_the_insights_of_a_day_replace_those_found_before(office: Office) -> None:
    await office.payable("1", 100, "2026-06-01")
    await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert {kind for kind, _ in await office.insights(DAY)} == {"budget", "overdue"}
    await office.remove("accounts_payable")
    again = await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert again == {"skipped": True, "reason": "already_completed"}
    await office.run("generateAIInsights", companyId="acme", date=DAY, dataVersion="2")
    assert await office.insights(DAY) == {}


async def test_a_kind_of_insight_has_a_limit(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insights, "KIND_MAX", 3)
    for number in range(5):
        await office.payable(str(number), 100 + number, "2026-06-01", vendor=f"V{number}", category=f"C{number}")
    result = await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert (result["budget"], result["overdue"]) == (3, 3)
    subjects = {subject for _, subject in await office.insights(DAY)}
    assert subjects == {"C2", "C3", "C4", "V2", "V3", "V4"}


async def test_without_a_day_it_is_today(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insights, "today", lambda: DAY)
    assert (await office.run("generateAIInsights", companyId="acme"))["date"] == DAY


@pytest.mark.usefixtures("no_language_model")
async def test_no_language_model_is_asked_by_default(office: Office) -> None:
    await office.payable("1", 100, "2026-06-01")
    await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert_not_enqueued(office.app, "summarizeAIInsights", status=None)
    with pytest.raises(JobsFailed, match="no language model is in use"):
        await office.run("summarizeAIInsights", companyId="acme", date=DAY, messages=["x"])


@pytest.mark.usefixtures("no_language_model")
async def test_a_language_model_sums_up_in_a_job_of_its_own(office: Office) -> None:
    asked: list[tuple[str, list[str]]] = []

    async def ask(company: str, messages: list[str]) -> str:
        asked.append((company, messages))
        return "All is well." if len(asked) > 1 else "First."

    backoffice.insights.use_language_model(ask)
    await office.payable("1", 100, "2026-06-01")
    await office.run("generateAIInsights", companyId="acme", date=DAY)
    ((company, messages),) = asked
    assert company == "acme"
    assert "Paper & Co: 1 payable overdue, 1.00, the oldest for 29 days" in messages
    assert (await office.insights(DAY))[("summary", "all")] == ("First.", {"of": 2})
    await office.run("summarizeAIInsights", companyId="acme", date=DAY, messages=messages)
    assert (await office.insights(DAY))[("summary", "all")][0] == "All is well."


@pytest.mark.usefixtures("no_language_model")
async def test_a_language_model_that_fails_harms_no_insight(office: Office) -> None:
    async def ask(company: str, messages: list[str]) -> str:
        raise ConnectionError("the model is away")

    backoffice.insights.use_language_model(ask)
    await office.payable("1", 100, "2026-06-01")
    with pytest.raises(JobsFailed, match="the model is away"):
        await office.run("generateAIInsights", companyId="acme", date=DAY)
    assert {kind for kind, _ in await office.insights(DAY)} == {"budget", "overdue"}
    assert_enqueued(office.app, "generateAIInsights", status=Status.SUCCEEDED, count=1)


@pytest.mark.every_store
async def test_a_notification_lands_in_the_outbox_once(office: Office) -> None:
    job = await office.app.enqueue(
        "sendNotifications",
        {"companyId": "acme", "message": "The report is ready", "channel": "email", "recipient": "cfo@acme.test"},
    )
    same = await office.app.enqueue("sendNotifications", {"companyId": "acme", "message": "The report is ready"})
    await drain(office.app)
    columns = ("job_id", "company_id", "channel", "recipient", "message", "sent_at")
    rows = await office.rows("notifications", *columns)
    assert sorted(rows) == sorted(
        [
            (job.job_id, "acme", "email", "cfo@acme.test", "The report is ready", None),
            (same.job_id, "acme", "inApp", None, "The report is ready", None),
        ]
    )


async def test_a_ping_is_answered(office: Office) -> None:
    result = await office.run("healthPing")
    assert result["pong"] is True
    assert result["at"].endswith("Z")


async def test_critical_jobs_go_before_the_others(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office.app, "settings", office.app.settings.model_copy(update={"concurrency": 1}))
    ping = await office.app.enqueue("healthPing")
    note = await office.app.enqueue("sendNotifications", {"companyId": "acme", "message": "hi"})
    insight = await office.app.enqueue("generateAIInsights", {"companyId": "acme", "date": DAY})
    snapshot = await office.app.enqueue("generateMonthlySnapshots", {"companyId": "acme"})
    started: list[str] = []
    begin = Job.__init__

    def watched(job: Job, claimed: Any, context: Any) -> None:
        begin(job, claimed, context)
        started.append(job.id)

    monkeypatch.setattr(Job, "__init__", watched)
    await drain(office.app)
    assert started == [snapshot.job_id, insight.job_id, note.job_id, ping.job_id]


@pytest.mark.every_store
async def test_the_tables_are_made_by_many_at_once(store: Store, office: Office) -> None:
    await drop_tables(store)

    async def make() -> None:
        async with store.transaction() as tx:
            await backoffice.ensure_tables(tx)

    await asyncio.gather(*(make() for _ in range(8)))
    for table in TABLES:
        async with store.transaction() as tx:
            found = await tx.table(table)
        assert found is not None
        assert found.empty
        assert {column.name for column in found.columns} == {column.name for column in columns_of(table)}
        assert list(found.keys) == ([frozenset(key_of(table))] if key_of(table) else [])


@pytest.mark.every_store
async def test_what_is_older_does_not_overwrite_what_is_newer(store: Store, office: Office) -> None:
    await office.payable("1", 100, "2026-01-05")
    order: list[str] = []

    async def write(name: str, entered: asyncio.Event, go_on: asyncio.Event) -> None:
        async with store.transaction() as tx:
            await one_at_a_time(tx, "acme")
            order.append(f"{name} in")
            entered.set()
            await go_on.wait()
            order.append(f"{name} out")

    inside, leave, later, free = (asyncio.Event() for _ in range(4))
    free.set()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(write("first", inside, leave))
        await inside.wait()
        tasks.create_task(write("second", later, free))
        if "postgres" in store.url:
            while not await _waiting(store):
                await asyncio.sleep(0.001)
        leave.set()
    assert order == ["first in", "first out", "second in", "second out"]


async def _waiting(store: Store) -> bool:
    async with store.transaction() as tx:
        return bool(await tx.fetch("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
