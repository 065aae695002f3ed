"""Dry run of a load: what would change, and a sample of it before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rowlock.storage.chunk import all_new, in_key_order
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.loading.cells import told
from rowlock.storage.mongo.loading.merge import Judged, Merge, Row, numbered
from rowlock.storage.mongo.loading.table_schema import find_table, must_have
from rowlock.storage.mongo.loading.wipe import condition
from rowlock.storage.plain import plain
from rowlock.storage.row_errors import RowErrors
from rowlock.storage.tables import Change, Kind, Load, Loaded

if TYPE_CHECKING:
    import polars as pl


async def dry_run(scope: Scope, load: Load, frame: pl.DataFrame, values: Mapping[str, Any] | None) -> Loaded:
    """Return what a load would do; if `values` is given, after a wipe of the documents that have them."""
    if await find_table(scope, load.table) is None:
        return all_new(load, frame)
    wiped: Document | None = None
    if values is not None:
        wiped = condition(await must_have(scope, load.table, list(values)), values)
    put, row_errors = await Merge.begun(scope, load), RowErrors()
    judged = await put.judged(numbered(in_key_order(load, frame)), row_errors, wiped)
    return replace(
        judged.loaded(row_errors),
        changed=_changed(put, judged) if put.updates else {},
        sample=_sample(put, judged, wiped is not None) if load.sample else [],
    )


def _changed(put: Merge, judged: Judged) -> dict[str, int]:
    names = dict(zip(put.fields, put.names, strict=True))
    counts = dict.fromkeys((names[field] for field in put.watched), 0)
    for row in judged.rows:
        before = judged.existing.get(row.key)
        for field in put.differing(row, before) if before is not None else ():
            counts[names[field]] += 1
    return counts


def _sample(put: Merge, judged: Judged, replaces: bool) -> list[Change]:
    """Return the first rows, by key, that would be inserted, updated, or replace the document with their key."""
    sample: list[Change] = []
    meets = bool(put.key) and (put.updates or replaces)
    for row in judged.rows:
        if len(sample) == put.load.sample:
            break
        before = judged.existing.get(row.key) if meets else None
        if before is None or replaces or put.differing(row, before):
            sample.append(Change(row.number, None if before is None else _before(put, before), _after(put, row)))
    return sample


def _before(put: Merge, document: Document) -> dict[str, Any]:
    return {
        column.name: told(document.get(field), column.kind)
        for column, field in zip(put.load.columns, put.fields, strict=True)
    }


def _after(put: Merge, row: Row) -> dict[str, Any]:
    return {
        column.name: plain(cell, column.kind is Kind.JSON)
        for column, cell in zip(put.load.columns, row.cells, strict=True)
    }
