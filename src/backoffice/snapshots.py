"""Monthly snapshots: per company and month, what was owed, paid and budgeted."""

from __future__ import annotations

from typing import NamedTuple

from backoffice.application import CompanyId, Criticality, DataVersion, Day, Month, app
from backoffice.periods import months_of, share_cents
from backoffice.tables import Transaction, ensure_tables, one_at_a_time, sql
from rowlock import Job, Unique


class Payables(NamedTuple):
    number: int = 0
    cents: int = 0
    paid_cents: int = 0


@app.job(
    "generateMonthlySnapshots",
    priority=Criticality.CRITICAL.value,
    unique=Unique.while_active(),
    guard=app.guard("monthly_snapshot", "{companyId}:{amendedMonth|full}"),
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
            await tx.execute(sql(tx, "DELETE FROM monthly_snapshots WHERE company_id = ?"), companyId)
        await _write(tx, job, companyId, months)
        tx.result = {"months": len(months), "first": min(months, default=None), "last": max(months, default=None)}


@app.job(
    "batchRecalc",
    priority=Criticality.CRITICAL.value,
    unique=Unique.while_active(),
    guard=app.guard("batch_recalc", "{companyId}:{periodStart}_{periodEnd}"),
)
async def batch_recalc(
    job: Job, companyId: CompanyId, periodStart: Day, periodEnd: Day, dataVersion: DataVersion | None = None
) -> None:
    """Compute the snapshots of all months that a period touches once more."""
    months = months_of(periodStart, periodEnd)
    async with job.transaction() as tx:
        await ensure_tables(tx)
        await one_at_a_time(tx, companyId)
        await _write(tx, job, companyId, months)
        tx.result = {"months": len(months), "first": months[0], "last": months[-1]}


async def _months_with_data(tx: Transaction, company: str) -> list[str]:
    payables = await tx.fetch(
        sql(tx, "SELECT DISTINCT substr(issued_on, 1, 7) FROM accounts_payable WHERE company_id = ?"), company
    )
    years = await tx.fetch(sql(tx, "SELECT DISTINCT year FROM budgets WHERE company_id = ?"), company)
    budgeted = {f"{year:04}-{month:02}" for (year,) in years for month in range(1, 13)}
    return sorted({month for (month,) in payables} | budgeted)


async def _write(tx: Transaction, job: Job, company: str, months: list[str]) -> None:
    if not months:
        return
    payables = await _payables(tx, company, months)
    budgets = await _budgets(tx, company)
    customers = await tx.fetch(
        sql(tx, "SELECT substr(created_on, 1, 7), count(*) FROM customers WHERE company_id = ? GROUP BY 1"), company
    )
    for done, month in enumerate(months, 1):
        owed = payables.get(month, Payables())
        known = sum(count for since, count in customers if since is None or since <= month)
        row = (*owed, share_cents(budgets.get(int(month[:4]), 0), month), known)
        await tx.execute(sql(tx, _UPSERT), company, month, *row, job.id)
        job.progress(100 * done / len(months), f"{month}: {done} of {len(months)} months")


async def _payables(tx: Transaction, company: str, months: list[str]) -> dict[str, Payables]:
    rows = await tx.fetch(sql(tx, _PAYABLES), company, min(months), max(months))
    return {month: Payables(*map(int, sums)) for month, *sums in rows}


async def _budgets(tx: Transaction, company: str) -> dict[int, int]:
    rows = await tx.fetch(
        sql(tx, "SELECT year, CAST(sum(amount_cents) AS BIGINT) FROM budgets WHERE company_id = ? GROUP BY year"),
        company,
    )
    return dict(rows)


_PAYABLES = """
    SELECT substr(issued_on, 1, 7), count(*), CAST(sum(amount_cents) AS BIGINT),
           CAST(sum(CASE WHEN paid_on IS NULL THEN 0 ELSE amount_cents END) AS BIGINT)
    FROM accounts_payable
    WHERE company_id = ? AND substr(issued_on, 1, 7) BETWEEN ? AND ?
    GROUP BY 1
"""
_UPSERT = """
    INSERT INTO monthly_snapshots
        (company_id, month, payables_count, payables_cents, paid_cents, budget_cents, customers_count, job_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (company_id, month) DO UPDATE SET
        payables_count = excluded.payables_count, payables_cents = excluded.payables_cents,
        paid_cents = excluded.paid_cents, budget_cents = excluded.budget_cents,
        customers_count = excluded.customers_count, job_id = excluded.job_id
"""
