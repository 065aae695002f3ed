"""The application's own tables, the same on every store: amounts in cents, days and months as ISO 8601 text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

from backoffice.queries import Document, Transaction, store_of
from rowlock import StoreError

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
    "accounts_payable_by_day": ("accounts_payable", "company_id, issued_on", ""),
    "price_lists_active": ("price_lists", "company_id, kind", "active"),  # one active list of each kind
    "xact_raw_by_project": ("xact_raw", "company_id, project_id", ""),
}
_LOCKS = 7_027_001  # key of the application's PostgreSQL advisory locks
_TURNS = "company_turns"
_TYPES = {"TEXT": ["string"], "BIGINT": ["long", "int"], "INTEGER": ["int", "long"], "BOOLEAN": ["bool"]}


class Column(NamedTuple):
    name: str
    type: str
    nullable: bool


async def ensure_tables(tx: Transaction) -> None:
    """Create missing tables. They appear when the transaction commits; on MongoDB, at once."""
    store = store_of(tx)
    if store == "mongodb":
        await _ensure_collections(tx)
        return
    if store == "postgresql":
        if await _complete(tx):
            return
        # Two transactions that create the same table at once both see it missing, and one would fail.
        await tx.execute("SELECT pg_advisory_xact_lock($1)", _LOCKS)
    for name, columns in TABLES.items():
        await tx.execute(_create(store, f"CREATE TABLE IF NOT EXISTS {name} ({columns})"))
    for name, (table, columns, where) in _INDEXES.items():
        kind, which = ("UNIQUE INDEX", f" WHERE {where}") if where else ("INDEX", "")
        await tx.execute(_create(store, f"CREATE {kind} IF NOT EXISTS {name} ON {table} ({columns}){which}"))


def _create(store: str, statement: str) -> str:
    """Return the statement; on PostgreSQL it also succeeds if an import creates the same table at the same time."""
    if store != "postgresql":
        return statement
    return f"DO $$ BEGIN {statement}; EXCEPTION WHEN unique_violation OR duplicate_table THEN NULL; END $$"


async def one_at_a_time(tx: Transaction, company_id: str) -> None:
    """Wait until no other job writes data derived from this company's: older results must not overwrite newer ones.

    SQLite needs nothing, since a write transaction has the database to itself. MongoDB transactions that start with a
    write to the same document wait for each other.
    """
    store = store_of(tx)
    if store == "postgresql":
        await tx.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCKS, company_id)
    elif store == "mongodb":
        turn = {"q": {"_id": company_id}, "u": {"$inc": {"turns": 1}}, "upsert": True}
        await tx.execute({"update": _TURNS, "updates": [turn]})


def key_of(table: str) -> list[str]:
    """Return the columns of a table's primary key; an empty list if it has none."""
    found = re.search(r"PRIMARY KEY \((.*)\)", TABLES[table]) or re.match(r"\s*(\w+) TEXT PRIMARY KEY", TABLES[table])
    return found[1].split(", ") if found else []


def columns_of(table: str) -> Iterator[Column]:
    for name, kind, rest in re.findall(r"(\w+) (TEXT|BIGINT|INTEGER|BOOLEAN)( NOT NULL| PRIMARY KEY)?", TABLES[table]):
        yield Column(name, kind, not rest)


async def _complete(tx: Transaction) -> bool:
    found = await tx.fetch(
        "SELECT count(*) FROM unnest($1::text[]) AS name WHERE to_regclass(quote_ident(name)) IS NOT NULL",
        [*TABLES, *_INDEXES],
    )
    return bool(found[0][0] == len(TABLES) + len(_INDEXES))


async def _ensure_collections(tx: Transaction) -> None:
    """Create missing collections. Every step tolerates a concurrent run."""
    found = {one["name"]: one for one in await tx.fetch({"listCollections": 1})}
    for name in TABLES.keys() - found.keys():
        await _create_collection(tx, name)
    for name in TABLES.keys() & found.keys():
        if "validator" not in found[name]["options"]:  # a write created the collection
            await _index_key(tx, name, name)
            await tx.execute({"collMod": name, "validator": _validator(name)})
    if found.keys() < {*TABLES, _TURNS}:
        for name, (table, columns, where) in _INDEXES.items():
            only = {"unique": True, "partialFilterExpression": {where: True}} if where else {}
            await _index(tx, table, {"name": name, "key": dict.fromkeys(columns.split(", "), 1), **only})
        await _index(tx, _TURNS, {"name": "_id_", "key": {"_id": 1}})


async def _create_collection(tx: Transaction, name: str) -> None:
    """Create a collection with its validator and key under a temporary name, then rename it.

    An import refuses a collection without its columns or its key, so it must appear only when complete.
    """
    new = f"{name}_{uuid4().hex}"
    await tx.execute({"create": new, "validator": _validator(name)})
    await _index_key(tx, new, name)
    try:
        await tx.execute({"renameCollection": new, "to": name})
    except StoreError:
        await tx.execute({"drop": new})
        if not await tx.fetch({"listCollections": 1, "filter": {"name": name}}):
            raise


async def _index_key(tx: Transaction, table: str, name: str) -> None:
    """Make the key of the table `name` unique in the collection `table`."""
    if key := key_of(name):
        await _index(tx, table, {"name": "key", "key": dict.fromkeys(key, 1), "unique": True})


async def _index(tx: Transaction, table: str, index: Document) -> None:
    await tx.execute({"createIndexes": table, "indexes": [index]})


def _validator(table: str) -> Document:
    """Return the collection's validator, from which importers and people read the table's columns."""
    columns = list(columns_of(table))
    properties = {each.name: {"bsonType": [*_TYPES[each.type], *["null"] * each.nullable]} for each in columns}
    required = [each.name for each in columns if not each.nullable]
    return {"$jsonSchema": {"bsonType": "object", "properties": properties, "required": required}}
