"""Reports: costs of a period by category, compared with the budget."""

from __future__ import annotations

import json

from backoffice.application import CompanyId, Criticality, DataVersion, Day, app
from backoffice.periods import months_of, share_cents
from backoffice.queries import CENTS, PAID, Query, Transaction, ask, grouped, put, sum_where
from backoffice.tables import ensure_tables, key_of, one_at_a_time
from rowlock import Job, Unique

Totals = dict[str, dict[str, int]]


@app.job(
    "updateReports",
    priority=Criticality.CRITICAL.value,
    unique=Unique.while_active(),
    lock=app.lock("monthly_report", "{companyId}:{periodStart}_{periodEnd}"),
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
        await put(
            tx,
            "reports",
            key_of("reports"),
            company_id=companyId,
            period_start=periodStart,
            period_end=periodEnd,
            payables_cents=payables,
            budget_cents=budget,
            totals=json.dumps(totals, sort_keys=True),
            job_id=job.id,
        )
        tx.result = {"categories": len(totals), "payablesCents": payables, "budgetCents": budget}


async def totals_by_category(tx: Transaction, company: str, start: str, end: str, months: list[str]) -> Totals:
    """Return number of payables and cents owed, paid and budgeted in a period, by category."""
    totals: Totals = {}

    def figures(category: str) -> dict[str, int]:
        return totals.setdefault(category, {"count": 0, "payablesCents": 0, "paidCents": 0, "budgetCents": 0})

    for category, count, cents, paid in await ask(tx, _PAYABLES, company, start, end):
        figures(category).update(count=int(count), payablesCents=int(cents), paidCents=int(paid))
    first, last = int(months[0][:4]), int(months[-1][:4])
    for category, year, cents in await ask(tx, _BUDGETS, company, first, last):
        touched = [month for month in months if int(month[:4]) == year]
        figures(category)["budgetCents"] += sum(share_cents(int(cents), month) for month in touched)
    return totals


_PAYABLES = Query(
    "accounts_payable",
    ("category", "number", "cents", "paid"),
    """
    SELECT category, count(*), CAST(sum(amount_cents) AS BIGINT),
           CAST(sum(CASE WHEN paid_on IS NULL THEN 0 ELSE amount_cents END) AS BIGINT)
    FROM accounts_payable WHERE company_id = ? AND issued_on BETWEEN ? AND ? GROUP BY category
    """,
    lambda company, start, end: [
        {"$match": {"company_id": company, "issued_on": {"$gte": start, "$lte": end}}},
        *grouped({"category": "$category"}, number={"$sum": 1}, cents=CENTS, paid=sum_where(PAID, "$amount_cents")),
    ],
)
_BUDGETS = Query(
    "budgets",
    ("category", "year", "cents"),
    """
    SELECT category, year, CAST(sum(amount_cents) AS BIGINT)
    FROM budgets WHERE company_id = ? AND year BETWEEN ? AND ? GROUP BY category, year
    """,
    lambda company, first, last: [
        {"$match": {"company_id": company, "year": {"$gte": first, "$lte": last}}},
        *grouped({"category": "$category", "year": "$year"}, cents=CENTS),
    ],
)
