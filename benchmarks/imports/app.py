"""The application whose workers are measured: importers of customers, and one for warming up."""

from __future__ import annotations

from benchmarks.imports.model import KEY, TABLE, Customer
from rowlock import Rowlock
from rowlock.settings import Settings

UPSERT, REPLACE, WARM = "customers", "customers.replace", "warm"


def application(settings: Settings | None = None) -> Rowlock:
    """Declare importers of customers: by upsert, by replace, and into a table of their own."""
    made = Rowlock(settings=settings)
    made.importer(UPSERT, row=Customer, key=[KEY], into=TABLE)
    made.importer(REPLACE, row=Customer, key=[KEY], into=TABLE, mode="replace")
    made.importer(WARM, row=Customer, key=[KEY], into="warm")
    return made


app = application()
