"""Monthly snapshots: amounts owed, paid and budgeted per company and month."""

from __future__ import annotations

from typing import NamedTuple

from backoffice.application import CompanyId, Criticality, DataVersion, Day, Month, app
from backoffice.periods import months_of, share_cents
from backoffice.queries import CENTS, PAID, Document, Query, Transaction, ask, grouped, put, remove, sum_where
from backoffice.tables import ensure_tables, key_of, one_at_a_time
from rowlock import Job, Unique


class Payables(NamedTuple):
    number: int = 0
    cents: int = 0
    paid_cents: int = 0


@app.job(
    "generateMonthlySnapshots",
    priority=Criticality.CRITICAL.value,
    unique=Unique.while_active(),
    lock=app.lock("monthly_snapshot", "{companyId}:{amendedMonth|full}"),
)
async def generate_monthly_snapshots(
    job: Job, companyId: CompanyId, amendedMonth: Month | None = None, dataVersion: DataVersion | None = None
) -> None:
    """Compute the snapshot of the month whose data were amended, or of every month that has data."""
    async with job.transaction() as tx:
        await ensure_tables(tx)
        await one_at_a_time(tx, companyId)
        if amendedMonth is not None:
            months = [amendedMonth]
        else:
            months = await _months_with_data(tx, companyId)
            await remove(tx, "monthly_snapshots", company_id=companyId)
        await _write(tx, job, companyId, months)
        tx.result = {"months": len(months), "first": min(months, default=None), "last": max(months, default=None)}


@app.job(
    "batchRecalc",
    priority=Criticality.CRITICAL.value,
    unique=Unique.while_active(),
    lock=app.lock("batch_recalc", "{companyId}:{periodStart}_{periodEnd}"),
)
async def batch_recalc(
    job: Job, companyId: CompanyId, periodStart: Day, periodEnd: Day, dataVersion: DataVersion | None = None
) -> None:
    """Recompute the snapshots of all months that a period touches."""
    months = months_of(periodStart, periodEnd)
    async with job.transaction() as tx:
        await ensure_tables(tx)
        await one_at_a_time(tx, companyId)
        await _write(tx, job, companyId, months)
        tx.result = {"months": len(months), "first": months[0], "last": months[-1]}


async def _months_with_data(tx: Transaction, company: str) -> list[str]:
    payables = await ask(tx, _MONTHS, company)
    years = await _budgets(tx, company)
    budgeted = {f"{year:04}-{month:02}" for year in years for month in range(1, 13)}
    return sorted({month for (month,) in payables} | budgeted)


async def _write(tx: Transaction, job: Job, company: str, months: list[str]) -> None:
    if not months:
        return
    payables = await _payables(tx, company, months)
    budgets = await _budgets(tx, company)
    customers = await ask(tx, _CUSTOMERS, company)
    for done, month in enumerate(months, 1):
        owed = payables.get(month, Payables())
        known = sum(count for since, count in customers if since is None or since <= month)
        await put(
            tx,
            "monthly_snapshots",
            key_of("monthly_snapshots"),
            company_id=company,
            month=month,
            payables_count=owed.number,
            payables_cents=owed.cents,
            paid_cents=owed.paid_cents,
            budget_cents=share_cents(budgets.get(int(month[:4]), 0), month),
            customers_count=known,
            job_id=job.id,
        )
        job.progress(100 * done / len(months), f"{month}: {done} of {len(months)} months")


async def _payables(tx: Transaction, company: str, months: list[str]) -> dict[str, Payables]:
    rows = await ask(tx, _PAYABLES, company, min(months), max(months))
    return {month: Payables(*map(int, sums)) for month, *sums in rows}


async def _budgets(tx: Transaction, company: str) -> dict[int, int]:
    return dict(await ask(tx, _BUDGETS, company))


def _month(day: str) -> Document:
    return {"$substrBytes": [day, 0, 7]}


_MONTHS = Query(
    "accounts_payable",
    ("month",),
    "SELECT DISTINCT substr(issued_on, 1, 7) FROM accounts_payable WHERE company_id = ?",
    lambda company: [{"$match": {"company_id": company}}, *grouped({"month": _month("$issued_on")})],
)
_BUDGETS = Query(
    "budgets",
    ("year", "cents"),
    "SELECT year, CAST(sum(amount_cents) AS BIGINT) FROM budgets WHERE company_id = ? GROUP BY year",
    lambda company: [{"$match": {"company_id": company}}, *grouped({"year": "$year"}, cents=CENTS)],
)
_CUSTOMERS = Query(
    "customers",
    ("month", "number"),
    "SELECT substr(created_on, 1, 7), count(*) FROM customers WHERE company_id = ? GROUP BY 1",
    lambda company: [
        {"$match": {"company_id": company}},
        *grouped(
            {"month": {"$cond": [{"$gt": ["$created_on", None]}, _month("$created_on"), None]}}, number={"$sum": 1}
        ),
    ],
)
_PAYABLES = Query(
    "accounts_payable",
    ("month", "number", "cents", "paid"),
    """
    SELECT substr(issued_on, 1, 7), count(*), CAST(sum(amount_cents) AS BIGINT),
           CAST(sum(CASE WHEN paid_on IS NULL THEN 0 ELSE amount_cents END) AS BIGINT)
    FROM accounts_payable
    WHERE company_id = ? AND substr(issued_on, 1, 7) BETWEEN ? AND ?
    GROUP BY 1
    """,
    lambda company, first, last: [
        {"$match": {"company_id": company, "issued_on": {"$gte": first, "$lt": f"{last}~"}}},
        *grouped(
            {"month": _month("$issued_on")}, number={"$sum": 1}, cents=CENTS, paid=sum_where(PAID, "$amount_cents")
        ),
    ],
)
