"""How the rows of an import are loaded into their table, and how they replace existing rows."""

from __future__ import annotations

from enum import Enum, auto

from rowlock.errors import FileRefused
from rowlock.imports.importer import ImportType, Policy
from rowlock.imports.read.plan_request import Found
from rowlock.storage.contract import Store
from rowlock.storage.imports import TransactionBounds
from rowlock.storage.tables import Mode

TOO_LARGE = "too_large_for_one_transaction"
_OWN_ID = "_id"


class Strategy(Enum):
    DIRECT = auto()
    """Chunks load into the table."""
    STAGED = auto()
    """Chunks load into a staging table, which the finish job merges into the table in one transaction."""
    IN_PLACE = auto()
    """Each chunk removes the rows that its own replace; the finish job removes those that no row has replaced."""
    WIPED = auto()
    """The table is wiped before the chunks load: later, nothing could distinguish old rows from new ones."""


async def strategy_of(store: Store, declared: ImportType, bounds: TransactionBounds | None) -> Strategy:
    """Return how this import is loaded; `bounds` are those of the store's transactions, None if there are none."""
    if declared.policy is Policy.ALL_OR_NOTHING:
        return Strategy.STAGED
    if declared.mode is not Mode.REPLACE:
        return Strategy.DIRECT
    if declared.importer.loads:  # rows that its own `load` writes must not be mistaken for old ones
        return Strategy.WIPED
    if bounds is None:
        return Strategy.STAGED
    if all(column.name != _OWN_ID for column in declared.columns):
        return Strategy.IN_PLACE
    # IN_PLACE recognises the documents of an import by the `_id` that they get.
    return Strategy.WIPED if await store.lacks_transactions() else Strategy.STAGED


def check_bounds(declared: ImportType, found: Found, size_bytes: int, bounds: TransactionBounds) -> None:
    """Raise FileRefused if the rows do not fit one transaction; `size_bytes` is the size of all chunk files."""
    rows_max = bounds.rows_max(found.rows, size_bytes)
    if found.rows > rows_max:
        raise FileRefused(
            f"the file has {found.rows:,} rows, and importer {declared.name!r} loads all of them in one transaction, "
            f"but this database server takes about {rows_max:,} such rows per transaction; nothing was loaded: split "
            "the file, declare the importer with policy='partial', or give the server a larger cache",
            code=TOO_LARGE,
            more={"rows": found.rows, "rowsMax": rows_max},
        )
