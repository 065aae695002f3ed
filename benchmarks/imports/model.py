"""The imported rows: one pydantic model and one table for all systems, and the statements that fill the table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints


class Customer(BaseModel):
    """A row of the file. The patterns mean the same to Python's and Rust's regular expressions."""

    email: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.+_-]+@[a-z0-9-]+(\.[a-z0-9-]+)+$", max_length=254)]
    name: Annotated[str, StringConstraints(min_length=1, max_length=120)]
    company: Annotated[str, StringConstraints(max_length=120)] | None = None
    phone: Annotated[str, StringConstraints(pattern=r"^\+[0-9][0-9 ]{5,23}$")] | None = None
    city: Annotated[str, StringConstraints(max_length=80)] | None = None
    country: Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}$")]
    since: dt.date
    balance: Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=2)]
    active: bool
    note: Annotated[str, StringConstraints(max_length=200)] | None = None


COLUMNS = tuple(Customer.model_fields)
KEY = "email"
TABLE = "customers"
OTHERS = 10_000  # rows with other keys, if the table must not be empty
_LIST = ", ".join(COLUMNS)
_TYPES = {"since": "date", "balance": "numeric(12,2)", "active": "boolean"}
_REQUIRED = {name for name, field in Customer.model_fields.items() if field.is_required()}
_BODY = ", ".join(f"{c} {_TYPES.get(c, 'text')}{' NOT NULL' if c in _REQUIRED else ''}" for c in COLUMNS)
_SET = ", ".join(f"{c} = excluded.{c}" for c in COLUMNS if c != KEY)

CREATE = f"CREATE TABLE {TABLE} ({_BODY}, PRIMARY KEY ({KEY}))"
CREATE_STAGING = f"CREATE TEMP TABLE staging ({_BODY})"
FILL_WITH_OTHERS = f"""INSERT INTO {TABLE} SELECT 'other-' || n || '@example.com', 'Other', NULL, NULL, NULL, 'NO',
    date '2020-01-01', 1, true, NULL FROM generate_series(1, {OTHERS}) n"""
COPY = f"COPY {{}} ({_LIST}) FROM STDIN (FORMAT csv, HEADER true)"
_UPSERT = f"INSERT INTO {TABLE} AS t ({_LIST}) {{}} ON CONFLICT ({KEY}) DO UPDATE SET {_SET}"
UPSERT_ROW = _UPSERT.format(f"VALUES ({', '.join(['%s'] * len(COLUMNS))})")
UPSERT_STAGING = _UPSERT.format(f"SELECT {_LIST} FROM staging")
UPSERT_STAGING_COUNTED = f"""WITH done AS ({UPSERT_STAGING} RETURNING (xmax = 0) AS inserted)
    SELECT count(*) FILTER (WHERE inserted), count(*) FILTER (WHERE NOT inserted) FROM done"""

_TEXTS = ", ".join(rf"coalesce({c}::text, '\N')" for c in COLUMNS)
CONTENT = f"""SELECT count(*), coalesce(sum(('x' || substr(md5(concat_ws('|', {_TEXTS})), 1, 15))::bit(60)::bigint), 0)
    FROM {TABLE} WHERE {KEY} NOT LIKE 'other-%'"""
