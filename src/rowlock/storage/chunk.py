"""The rows of a load in the form that the stores take: sorted by key, in columns named c0, c1, …."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import orjson

from rowlock.storage.plain import plain
from rowlock.storage.tables import Change, Kind, Load, Loaded

if TYPE_CHECKING:
    import polars as pl


def in_key_order(load: Load, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns `row` and the columns of the load as c0, c1, …: a name such as `^.*$` would be a pattern to Polars.

    Rows are sorted by key: two loads of the same keys then never deadlock, and an index fills from one end.
    """
    import polars as pl

    names = [column.name for column in load.columns]
    cells = [frame.get_column(name).alias(f"c{place}") for place, name in enumerate(names)]
    own = pl.DataFrame([frame.get_column("row"), *cells])
    return own.sort([f"c{names.index(name)}" for name in load.key]) if load.key else own


def all_new(load: Load, frame: pl.DataFrame) -> Loaded:
    """Returns the result of a load into a table that does not exist yet."""
    first = in_key_order(load, frame).head(load.sample)
    sample = [
        Change(
            row,
            None,
            {
                column.name: plain(cell, column.kind is Kind.JSON)
                for column, cell in zip(load.columns, cells, strict=True)
            },
        )
        for row, *cells in first.iter_rows()
    ]
    return Loaded(inserted=len(frame), changed={}, sample=sample)


def alone(value: Any) -> pl.DataFrame:
    """Returns a frame of one cell with this value, converted as in the rows of a chunk."""
    import polars as pl

    match value:
        case datetime() if value.tzinfo is not None:
            value = value.astimezone(UTC)
        case dict() | list() | tuple():
            value = orjson.dumps(value).decode()
        case bool() | float() | date() | time():
            pass
        case _:
            value = str(value)
    return pl.DataFrame({"c0": [value]})
