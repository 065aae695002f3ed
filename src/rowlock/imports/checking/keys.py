"""A hash of the key of each row, made before the rows are checked: keys that become equal values have equal hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from rowlock.imports.checking.coerce import BLANKS, coerce
from rowlock.imports.checking.columns import convert, dtype_of
from rowlock.imports.checking.reasons import BadCell
from rowlock.imports.checking.stored import stored
from rowlock.imports.fields import Field
from rowlock.imports.source import CellKind
from rowlock.storage.tables import Kind

_SEED = 0x5EED  # any number, but the same in each process of an import
_MIX = 0x9E3779B97F4A7C15


def hashable(fields: Sequence[Field]) -> bool:
    """Whether keys of these fields can be compared before pydantic has seen the rows."""
    return not any(field.opaque or (field.factory and not field.nullable) for field in fields)


def key_hash(frame: pl.DataFrame, key_fields: Sequence[Field], typed: bool) -> pl.Series:
    """UInt64 per row: of the values that the key's cells will have, of their text where they will have none."""
    if not hashable(key_fields):
        raise ValueError("a key with a field that only pydantic can read has no hash before pydantic has read it")
    made = pl.repeat(_SEED, frame.height, dtype=pl.UInt64, eager=True)
    for field in key_fields:
        kinds = frame[field.name + "#kind"] if typed else None
        made = (made ^ _normal(field, frame[field.name], kinds).hash(_SEED)) * _MIX
    return made.alias("key_hash")


def _normal(field: Field, cells: pl.Series, kinds: pl.Series | None) -> pl.Series:
    if field.kind is Kind.TEXT:  # what a text may not be says nothing about which texts are equal
        field = replace(field, pattern=None, length_min=None, length_max=None)
    converted = convert(field, cells, kinds)
    values = converted.values + 0.0 if field.kind is Kind.FLOAT else converted.values  # -0.0 equals 0.0
    if not converted.bad.any():
        return values.cast(pl.String)
    where = converted.bad.arg_true()
    found: list[object] = []
    spelled: list[str | None] = []
    for text, kind in zip(
        cells.gather(where), kinds.gather(where) if kinds is not None else [0] * len(where), strict=True
    ):
        try:
            value = stored(field.kind, coerce(field, text, CellKind(kind)), field.places, field.zone)
        except BadCell:
            value = None
        found.append(value)
        spelled.append(text.strip(BLANKS) if value is None else None)
    decided = pl.Series(found, dtype=dtype_of(field))
    normal = values.scatter(where, decided).cast(pl.String)
    told = pl.Series(spelled, dtype=pl.String)
    return normal.scatter(where, decided.cast(pl.String).zip_with(told.is_null(), told))
