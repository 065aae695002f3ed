"""The rows of a load as the stores take them: by key, under names that mean nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowlock.storage.tables import Load

if TYPE_CHECKING:
    import polars as pl


def in_key_order(load: Load, frame: pl.DataFrame) -> pl.DataFrame:
    """`row`, and the columns of the load as c0, c1, …: a name such as `^.*$` would be a pattern to Polars.

    By key: two loads of the same keys wait for each other and never both at once, and an index fills from one end.
    """
    import polars as pl

    names = [column.name for column in load.columns]
    cells = [frame.get_column(name).alias(f"c{place}") for place, name in enumerate(names)]
    own = pl.DataFrame([frame.get_column("row"), *cells])
    return own.sort([f"c{names.index(name)}" for name in load.key]) if load.key else own
