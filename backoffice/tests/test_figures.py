"""Snapshots, recalculation and reports: real sums of real rows, committed with their job."""

from __future__ import annotations

import json

import pytest
from office_rig import Office

from backoffice import snapshots
from rowlock import DuplicateJob, FakeClock, Status
from rowlock.testing import JobsFailed, drain


@pytest.mark.every_store
async def test_snapshots_of_all_months_that_have_data(office: Office) -> None:
    await office.payable("1", 10_000, "2026-01-05", paid_on="2026-01-20")
    await office.payable("2", 2_550, "2026-01-31")
    await office.payable("3", 999, "2026-03-01")
    await office.payable("4", 7, "2025-12-31", category="travel")
    await office.payable("1", 555, "2026-01-05", company_id="other")
    await office.budget(2026, 1_200_007)
    customer = {"company_id": "acme", "name": "Ada"}
    await office.fill("customers", customer | {"email": "a@b.c", "created_on": "2026-02-10"})
    await office.fill("customers", customer | {"email": "d@e.f", "created_on": "2025-02-10"})

    result = await office.run("generateMonthlySnapshots", companyId="acme")
    assert result == {"months": 13, "first": "2025-12", "last": "2026-12"}
    found = await office.snapshots()
    assert len(found) == 13
    assert found["2025-12"] == (1, 7, 0, 0, 1)
    assert found["2026-01"] == (2, 12_550, 10_000, 100_000, 1)
    assert found["2026-02"] == (0, 0, 0, 100_001, 2)
    assert found["2026-03"][:3] == (1, 999, 0)
    assert sum(figures[3] for figures in found.values()) == 1_200_007
    assert await office.snapshots("other") == {}


async def test_an_amended_month_is_the_only_one_written(office: Office) -> None:
    await office.payable("1", 100, "2026-01-05")
    await office.payable("2", 200, "2026-02-05")
    assert await office.run("generateMonthlySnapshots", companyId="acme", amendedMonth="2026-02") == {
        "months": 1,
        "first": "2026-02",
        "last": "2026-02",
    }
    assert await office.snapshots() == {"2026-02": (1, 200, 0, 0, 0)}
    await office.run("generateMonthlySnapshots", companyId="acme", amendedMonth="2024-07")
    assert (await office.snapshots())["2024-07"] == (0, 0, 0, 0, 0)


async def test_a_company_without_data_has_no_snapshots(office: Office) -> None:
    result = await office.run("generateMonthlySnapshots", companyId="nobody")
    assert result == {"months": 0, "first": None, "last": None}
    assert await office.snapshots("nobody") == {}


async def test_what_was_done_is_skipped_until_the_data_are_others(office: Office) -> None:
    await office.payable("1", 100, "2026-01-05")
    await office.run("generateMonthlySnapshots", companyId="acme")
    await office.payable("2", 200, "2026-01-06")
    again = await office.run("generateMonthlySnapshots", companyId="acme")
    assert again == {"skipped": True, "reason": "already_completed"}
    assert (await office.snapshots())["2026-01"][1] == 100
    again = await office.run("generateMonthlySnapshots", companyId="acme", dataVersion="import 2")
    assert again["months"] == 1
    assert (await office.snapshots())["2026-01"][1] == 300


@pytest.mark.every_store
async def test_a_full_run_forgets_months_that_have_no_data_any_more(office: Office) -> None:
    await office.payable("1", 100, "2026-01-05")
    await office.payable("2", 200, "2026-02-05")
    await office.run("generateMonthlySnapshots", companyId="acme")
    await office.remove("accounts_payable", invoice_number="2")
    await office.run("generateMonthlySnapshots", companyId="acme", dataVersion="2")
    assert list(await office.snapshots()) == ["2026-01"]


async def test_the_same_job_is_not_queued_twice_while_it_waits(office: Office) -> None:
    await office.app.enqueue("generateMonthlySnapshots", {"companyId": "acme"})
    with pytest.raises(DuplicateJob):
        await office.app.enqueue("generateMonthlySnapshots", {"companyId": "acme"})


async def test_recalculation_covers_every_month_of_the_period_and_reports_progress(office: Office) -> None:
    await office.payable("1", 100, "2026-01-31")
    await office.payable("2", 200, "2026-04-01")
    await office.run("generateMonthlySnapshots", companyId="acme")
    await office.payable("1", 1_000, "2026-01-31")
    await office.payable("2", 2_000, "2026-04-01")
    job = await office.app.enqueue(
        "batchRecalc", {"companyId": "acme", "periodStart": "2026-01-15", "periodEnd": "2026-03-01"}
    )
    await drain(office.app)
    record = await office.record(job.job_id)
    assert json.loads(record.result or "") == {"months": 3, "first": "2026-01", "last": "2026-03"}
    assert {month: figures[1] for month, figures in (await office.snapshots()).items()} == {
        "2026-01": 1_000,
        "2026-02": 0,
        "2026-03": 0,
        "2026-04": 200,  # outside the period
    }


async def test_progress_is_told_month_by_month(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, str | None]] = []
    monkeypatch.setattr("rowlock.Job.progress", lambda job, percent, message=None: told.append((percent, message)))
    await office.run("batchRecalc", companyId="acme", periodStart="2026-01-01", periodEnd="2026-04-30")
    assert [percent for percent, _ in told] == [25, 50, 75, 100]
    assert told[1][1] == "2026-02: 2 of 4 months"


async def test_a_period_that_ends_before_it_starts_is_dead_at_once(office: Office) -> None:
    for name in ("batchRecalc", "updateReports"):
        with pytest.raises(JobsFailed, match="before it starts") as caught:
            await office.run(name, companyId="acme", periodStart="2026-02-01", periodEnd="2026-01-01")
        assert caught.value.jobs[0].status is Status.FAILED


@pytest.mark.every_store
async def test_when_a_run_breaks_in_the_middle_nothing_of_it_is_kept(
    office: Office, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.payable("1", 100, "2026-01-05")
    await office.run("generateMonthlySnapshots", companyId="acme")
    before = await office.snapshots()
    await office.payable("2", 200, "2026-02-05")
    real, written = snapshots.share_cents, []

    def breaking(cents: int, month: str) -> int:
        written.append(month)
        if len(written) == 2:
            raise OSError("the disk is gone")
        return real(cents, month)

    monkeypatch.setattr(snapshots, "share_cents", breaking)
    with pytest.raises(JobsFailed, match="the disk is gone"):
        await office.run("generateMonthlySnapshots", companyId="acme", dataVersion="2")
    assert written == ["2026-01", "2026-02"]
    assert await office.snapshots() == before
    clock.advance(60)
    (retried,) = await drain(office.app)
    assert (retried.status, retried.attempts) == (Status.SUCCEEDED, 2)
    assert list(await office.snapshots()) == ["2026-01", "2026-02"]


@pytest.mark.every_store
async def test_a_report_has_the_totals_of_its_period_by_category(office: Office) -> None:
    await office.payable("1", 10_000, "2026-01-01", paid_on="2026-01-20")
    await office.payable("2", 2_000, "2026-03-31")
    await office.payable("3", 300, "2026-02-10", category="travel")
    await office.payable("4", 99, "2025-12-31")
    await office.payable("5", 99, "2026-04-01")
    await office.budget(2026, 120_000)
    await office.budget(2026, 12_000, "marketing")
    await office.budget(2025, 999)
    period = {"companyId": "acme", "periodStart": "2026-01-01", "periodEnd": "2026-03-31"}
    assert await office.run("updateReports", **period) == {
        "categories": 3,
        "payablesCents": 12_300,
        "budgetCents": 33_000,
    }
    columns = ("period_start", "period_end", "payables_cents", "budget_cents", "totals")
    ((start, end, payables, budget, totals),) = await office.rows("reports", *columns)
    assert (start, end, payables, budget) == ("2026-01-01", "2026-03-31", 12_300, 33_000)
    assert json.loads(totals) == {
        "marketing": {"count": 0, "payablesCents": 0, "paidCents": 0, "budgetCents": 3_000},
        "office": {"count": 2, "payablesCents": 12_000, "paidCents": 10_000, "budgetCents": 30_000},
        "travel": {"count": 1, "payablesCents": 300, "paidCents": 0, "budgetCents": 0},
    }
    await office.payable("6", 700, "2026-02-11", category="travel")
    await office.run("updateReports", **period, dataVersion="2")
    assert await office.rows("reports", "payables_cents") == [(13_000,)]


async def test_a_period_over_two_years_has_the_budget_of_both(office: Office) -> None:
    await office.budget(2025, 120_000)
    await office.budget(2026, 240_000)
    result = await office.run("updateReports", companyId="acme", periodStart="2025-12-15", periodEnd="2026-01-15")
    assert result["budgetCents"] == 10_000 + 20_000
