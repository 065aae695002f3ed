"""Hash the key of each row before the rows are checked: keys that become equal values have equal hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from rowlock.imports.check.coerce import BLANKS, coerce
from rowlock.imports.check.columns import convert, dtype_of
from rowlock.imports.check.reasons import BadCell
from rowlock.imports.check.stored import stored
from rowlock.imports.fields import Field
from rowlock.imports.normalize import normal_text, normal_texts
from rowlock.imports.read.source import CellKind
from rowlock.storage.tables import Kind

_SEED = 0x5EED  # arbitrary, but the same in each process of an import
_MIX = 0x9E3779B97F4A7C15


def hashable(fields: Sequence[Field]) -> bool:
    """Return whether keys of these fields can be compared before pydantic has validated the rows."""
    return not any(field.opaque or (field.factory and not field.nullable) for field in fields)


def key_hash(frame: pl.DataFrame, key_fields: Sequence[Field], typed: bool) -> pl.Series:
    """Return a UInt64 per row from the values of the key's cells, or from the text of invalid cells.

    Raises ValueError if the key is not `hashable`.
    """
    if not hashable(key_fields):
        raise ValueError("a key with a field that only pydantic can read has no hash before pydantic has read it")
    made = pl.repeat(_SEED, frame.height, dtype=pl.UInt64, eager=True)
    for field in key_fields:
        kinds = frame[field.name + "#kind"] if typed else None
        made = (made ^ _normal(field, frame[field.name], kinds).hash(_SEED)) * _MIX
    return made.alias("key_hash")


def _normal(field: Field, cells: pl.Series, kinds: pl.Series | None) -> pl.Series:
    """Return the values of a key as the ledger compares them: it normalises texts once more before comparing."""
    values = _values(field, cells, kinds)
    return normal_texts(values) if field.normal and field.kind is Kind.TEXT else values


def _values(field: Field, cells: pl.Series, kinds: pl.Series | None) -> pl.Series:
    if field.kind is Kind.TEXT:  # limits of texts have no influence on which texts are equal
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
        spelled.append((normal_text(text) if field.normal else text).strip(BLANKS) if value is None else None)
    decided = pl.Series(found, dtype=dtype_of(field))
    normal = values.scatter(where, decided).cast(pl.String)
    told = pl.Series(spelled, dtype=pl.String)
    return normal.scatter(where, decided.cast(pl.String).zip_with(told.is_null(), told))
