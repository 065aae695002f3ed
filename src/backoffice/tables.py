"""The application's own tables, the same on every SQL store: amounts in cents, days and months as ISO 8601 text."""

from __future__ import annotations

import itertools
import re
from typing import Any, Protocol

from backoffice.application import app

TABLES = {
    "customers": """
        company_id TEXT NOT NULL, email TEXT NOT NULL, name TEXT NOT NULL, created_on TEXT,
        phone TEXT, street TEXT, city TEXT, postcode TEXT, country TEXT,
        credit_limit_cents BIGINT, newsletter BOOLEAN,
        PRIMARY KEY (company_id, email)""",
    "accounts_payable": """
        company_id TEXT NOT NULL, invoice_number TEXT NOT NULL, vendor TEXT NOT NULL, category TEXT NOT NULL,
        amount_cents BIGINT NOT NULL, issued_on TEXT NOT NULL, due_on TEXT NOT NULL, paid_on TEXT,
        PRIMARY KEY (company_id, invoice_number)""",
    "budgets": """
        company_id TEXT NOT NULL, year INTEGER NOT NULL, category TEXT NOT NULL, department TEXT NOT NULL,
        amount_cents BIGINT NOT NULL,
        PRIMARY KEY (company_id, year, category, department)""",
    "price_lists": """
        company_id TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, active BOOLEAN NOT NULL,
        PRIMARY KEY (company_id, id)""",
    "price_list_items": """
        company_id TEXT NOT NULL, price_list_id TEXT NOT NULL, id TEXT NOT NULL, cat TEXT NOT NULL, sel TEXT NOT NULL,
        description TEXT NOT NULL, unit TEXT NOT NULL, unit_price_cents BIGINT NOT NULL,
        PRIMARY KEY (company_id, price_list_id, cat, sel)""",
    "price_list_components": """
        company_id TEXT NOT NULL, price_list_id TEXT NOT NULL, item_id TEXT NOT NULL, component_code TEXT NOT NULL,
        description TEXT NOT NULL, kind TEXT, quantity_thousandths BIGINT NOT NULL, unit_cost_cents BIGINT NOT NULL,
        PRIMARY KEY (company_id, item_id, component_code)""",
    "xact_raw": """
        company_id TEXT NOT NULL, project_id TEXT NOT NULL, line_number BIGINT NOT NULL,
        group_code TEXT, group_description TEXT, cat TEXT NOT NULL, sel TEXT NOT NULL, activity TEXT,
        description TEXT NOT NULL, unit TEXT, note TEXT, quantity_thousandths BIGINT NOT NULL,
        unit_cost_cents BIGINT NOT NULL, item_amount_cents BIGINT NOT NULL, sales_tax_cents BIGINT, entered_on TEXT,
        import_id TEXT, import_row BIGINT""",
    "xact_components": """
        company_id TEXT NOT NULL, project_id TEXT NOT NULL, cat TEXT NOT NULL, sel TEXT NOT NULL,
        component_code TEXT NOT NULL, description TEXT NOT NULL, unit TEXT, taxable BOOLEAN,
        quantity_thousandths BIGINT NOT NULL, unit_price_cents BIGINT NOT NULL,
        PRIMARY KEY (company_id, project_id, cat, sel, component_code)""",
    "monthly_snapshots": """
        company_id TEXT NOT NULL, month TEXT NOT NULL,
        payables_count BIGINT NOT NULL, payables_cents BIGINT NOT NULL, paid_cents BIGINT NOT NULL,
        budget_cents BIGINT NOT NULL, customers_count BIGINT NOT NULL, job_id TEXT NOT NULL,
        PRIMARY KEY (company_id, month)""",
    "reports": """
        company_id TEXT NOT NULL, period_start TEXT NOT NULL, period_end TEXT NOT NULL,
        payables_cents BIGINT NOT NULL, budget_cents BIGINT NOT NULL, totals TEXT NOT NULL, job_id TEXT NOT NULL,
        PRIMARY KEY (company_id, period_start, period_end)""",
    "insights": """
        company_id TEXT NOT NULL, day TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
        message TEXT NOT NULL, figures TEXT NOT NULL, job_id TEXT NOT NULL,
        PRIMARY KEY (company_id, day, kind, subject)""",
    "notifications": """
        job_id TEXT PRIMARY KEY, company_id TEXT NOT NULL, channel TEXT NOT NULL, recipient TEXT,
        message TEXT NOT NULL, created_at TEXT NOT NULL, sent_at TEXT""",
}
_INDEXES = {
    "accounts_payable_by_day": "INDEX {} ON accounts_payable (company_id, issued_on)",
    "price_lists_active": "UNIQUE INDEX {} ON price_lists (company_id, kind) WHERE active",
    "xact_raw_by_project": "INDEX {} ON xact_raw (company_id, project_id)",
}
_LOCKS = 7_027_001  # a number of our own among PostgreSQL's advisory locks


class Transaction(Protocol):
    """What the functions here need of `job.transaction()`, and of the run of an import."""

    async def execute(self, query: str, *args: Any) -> None: ...

    async def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]: ...


async def ensure_tables(tx: Transaction) -> None:
    """Create the tables that are missing; they are there when the transaction commits."""
    if _is_postgres(tx):
        if await _complete(tx):
            return
        # Two that create the same table at once both see it missing, and one would fail.
        await tx.execute("SELECT pg_advisory_xact_lock($1)", _LOCKS)
    for name, columns in TABLES.items():
        await tx.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
    for name, index in _INDEXES.items():
        await tx.execute(f"CREATE {index.format(f'IF NOT EXISTS {name}')}")


async def one_at_a_time(tx: Transaction, company_id: str) -> None:
    """Wait until no other job writes what is derived from this company's data: none overwrites what is newer.

    On SQLite that is so already: a transaction has the database to itself.
    """
    if _is_postgres(tx):
        await tx.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCKS, company_id)


def sql(tx: Transaction, query: str) -> str:
    """A query of ours, written with `?`, as the store of this transaction takes it."""
    if not _is_postgres(tx):
        return query
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", query)


def _is_postgres(tx: Transaction) -> bool:
    connection = getattr(tx, "connection", None)
    if connection is None:  # a run shows none
        return app.settings.database_url.startswith("postgres")
    return type(connection).__module__.partition(".")[0] == "asyncpg"


async def _complete(tx: Transaction) -> bool:
    found = await tx.fetch(
        "SELECT count(*) FROM unnest($1::text[]) AS name WHERE to_regclass(quote_ident(name)) IS NOT NULL",
        [*TABLES, *_INDEXES],
    )
    return bool(found[0][0] == len(TABLES) + len(_INDEXES))
