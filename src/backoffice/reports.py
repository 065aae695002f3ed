"""Reports: what a period cost by category, against its budget."""

from __future__ import annotations

import json

from backoffice.application import CompanyId, Criticality, DataVersion, Day, app
from backoffice.periods import months_of, share_cents
from backoffice.tables import Transaction, ensure_tables, one_at_a_time, sql
from rowlock import Job, Unique

Totals = dict[str, dict[str, int]]


@app.job(
    "updateReports",
    priority=Criticality.CRITICAL.value,
    unique=Unique.while_active(),
    guard=app.guard("monthly_report", "{companyId}:{periodStart}_{periodEnd}"),
)
async def update_reports(
    job: Job, companyId: CompanyId, periodStart: Day, periodEnd: Day, dataVersion: DataVersion | None = None
) -> None:
    """Write the report of a period: totals by category; the budget is that of the months which it touches."""
    months = months_of(periodStart, periodEnd)
    async with job.transaction() as tx:
        await ensure_tables(tx)
        await one_at_a_time(tx, companyId)
        totals = await totals_by_category(tx, companyId, periodStart, periodEnd, months)
        payables = sum(figures["payablesCents"] for figures in totals.values())
        budget = sum(figures["budgetCents"] for figures in totals.values())
        await tx.execute(
            sql(tx, _UPSERT),
            companyId,
            periodStart,
            periodEnd,
            payables,
            budget,
            json.dumps(totals, sort_keys=True),
            job.id,
        )
        tx.result = {"categories": len(totals), "payablesCents": payables, "budgetCents": budget}


async def totals_by_category(tx: Transaction, company: str, start: str, end: str, months: list[str]) -> Totals:
    """What was owed, paid and budgeted in a period, by category."""
    totals: Totals = {}

    def figures(category: str) -> dict[str, int]:
        return totals.setdefault(category, {"count": 0, "payablesCents": 0, "paidCents": 0, "budgetCents": 0})

    for category, count, cents, paid in await tx.fetch(sql(tx, _PAYABLES), company, start, end):
        figures(category).update(count=int(count), payablesCents=int(cents), paidCents=int(paid))
    first, last = int(months[0][:4]), int(months[-1][:4])
    for category, year, cents in await tx.fetch(sql(tx, _BUDGETS), company, first, last):
        touched = [month for month in months if int(month[:4]) == year]
        figures(category)["budgetCents"] += sum(share_cents(int(cents), month) for month in touched)
    return totals


_PAYABLES = """
    SELECT category, count(*), CAST(sum(amount_cents) AS BIGINT),
           CAST(sum(CASE WHEN paid_on IS NULL THEN 0 ELSE amount_cents END) AS BIGINT)
    FROM accounts_payable WHERE company_id = ? AND issued_on BETWEEN ? AND ? GROUP BY category
"""
_BUDGETS = """
    SELECT category, year, CAST(sum(amount_cents) AS BIGINT)
    FROM budgets WHERE company_id = ? AND year BETWEEN ? AND ? GROUP BY category, year
"""
_UPSERT = """
    INSERT INTO reports (company_id, period_start, period_end, payables_cents, budget_cents, totals, job_id)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (company_id, period_start, period_end) DO UPDATE SET
        payables_cents = excluded.payables_cents, budget_cents = excluded.budget_cents,
        totals = excluded.totals, job_id = excluded.job_id
"""
