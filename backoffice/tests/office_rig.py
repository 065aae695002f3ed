"""The reference application in a test: its tables filled and read, its jobs run."""

from __future__ import annotations

import json
from typing import Any

import backoffice
from backoffice import queries
from backoffice.tables import TABLES, key_of
from rowlock import JobRecord, Rowlock
from rowlock.storage.contract import Store
from rowlock.testing import drain


class Office:
    """The application, and its tables as another process sees them."""

    def __init__(self, app: Rowlock, store: Store) -> None:
        self.app = app
        self._store = store

    async def rows(self, table: str, *columns: str, **where: Any) -> list[tuple[Any, ...]]:
        async with self._store.transaction() as tx:
            await backoffice.ensure_tables(tx)
            return await queries.rows(tx, table, columns, **where)

    async def fill(self, table: str, *rows: dict[str, Any]) -> None:
        async with self._store.transaction() as tx:
            await backoffice.ensure_tables(tx)
            for row in rows:
                await queries.put(tx, table, key_of(table), **row)

    async def remove(self, table: str, **where: Any) -> None:
        async with self._store.transaction() as tx:
            await queries.remove(tx, table, **where)

    async def payable(self, number: str, cents: int, issued_on: str, **other: Any) -> None:
        row = {"company_id": "acme", "vendor": "Paper & Co", "category": "office", "due_on": issued_on, "paid_on": None}
        given = {"invoice_number": number, "amount_cents": cents, "issued_on": issued_on}
        await self.fill("accounts_payable", row | given | other)

    async def budget(self, year: int, cents: int, category: str = "office", company: str = "acme") -> None:
        row = {"company_id": company, "year": year, "category": category, "department": "hq", "amount_cents": cents}
        await self.fill("budgets", row)

    async def run(self, type_name: str, **payload: Any) -> dict[str, Any]:
        """Enqueue a job, work until nothing is left, and return what it results in."""
        job_id = (await self.app.enqueue(type_name, payload)).job_id
        await drain(self.app)
        record = await self.record(job_id)
        found: dict[str, Any] = json.loads(record.result or "null")
        return found

    async def record(self, job_id: str) -> JobRecord:
        record = await self.app.get(job_id)
        assert record is not None
        return record

    async def snapshots(self, company: str = "acme") -> dict[str, tuple[int, ...]]:
        """By month: how many payables, their sum, what is paid, the budget, how many customers."""
        figures = ("payables_count", "payables_cents", "paid_cents", "budget_cents", "customers_count")
        rows = await self.rows("monthly_snapshots", "month", *figures, company_id=company)
        return {month: tuple(figures) for month, *figures in sorted(rows)}

    async def insights(self, day: str) -> dict[tuple[str, str], tuple[str, dict[str, Any]]]:
        """By kind and subject: what is said, and the figures."""
        rows = await self.rows("insights", "kind", "subject", "message", "figures", company_id="acme", day=day)
        return {(kind, subject): (message, json.loads(figures)) for kind, subject, message, figures in rows}


async def drop_tables(store: Store) -> None:
    """Those of another test, where the store keeps a database for all."""
    for table in TABLES:
        async with store.transaction() as tx:
            await tx.drop_table(table)
