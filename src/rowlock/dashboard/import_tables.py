"""Tables of an import's page: errors by group, rows with errors as in the sheet, rows before and after a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.dashboard.filters import sentence
from rowlock.dashboard.import_messages import about_code
from rowlock.imports.read.headers import letter
from rowlock.management.imports import BadRow, ErrorRows
from rowlock.management.schemas.imports import ImportSchema, RowErrorSchema

_WIDE = 6  # columns; a wider sheet shows the first one and those with errors


@dataclass(frozen=True, slots=True)
class Group:
    """Errors of one column and kind."""

    column: str | None
    reason: str
    count: int
    row: int | None  # of the example, if there is one
    value: str | None


def groups(found: ImportSchema) -> list[Group]:
    """Return the errors by column and code, the most frequent first, each with an example if the import has one."""
    first: dict[tuple[str | None, str], RowErrorSchema] = {}
    for error in found.summary.errors:
        first.setdefault((error.column, error.code), error)
    made = []
    for group in found.summary.error_groups:
        example = first.get((group.column, group.code))
        reason = sentence((example and example.reason) or about_code(group.code))
        row, value = (example.row, example.value) if example else (None, None)
        made.append(Group(group.column, reason, group.count, row, value))
    return made


@dataclass(frozen=True, slots=True)
class Column:
    letter: str
    name: str
    bad: bool  # has an error on this page


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Row:
    number: int
    cells: Sequence[Cell]
    reasons: Sequence[str]  # of the row as a whole, or of a column that is not shown


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows with errors in the columns of the file."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    hidden: int  # columns without errors that are left out


def sheet(page: ErrorRows, *, every_column: bool | None) -> Sheet:
    """Return the rows with errors as in the sheet, bad cells with their reasons.

    `every_column`: True shows all columns, False the first and those with errors; None decides by the sheet's width.
    """
    names = page.columns
    bad = {error.column for row in page.rows for error in row.errors}
    wide = len(names) > _WIDE if every_column is None else not every_column
    shown = [index for index, name in enumerate(names) if not wide or index == 0 or name in bad]
    columns = [Column(letter(index), names[index], names[index] in bad) for index in shown]
    return Sheet(columns, [_row(row, names, shown) for row in page.rows], len(names) - len(shown))


def _row(row: BadRow, names: Sequence[str], shown: Sequence[int]) -> Row:
    reasons: dict[int, list[str]] = {}
    loose: list[str] = []
    for error in row.errors:
        if error.column in names:
            reasons.setdefault(names.index(error.column), []).append(error.reason)
        else:
            loose.append(error.reason if error.column is None else f"{error.column}: {error.reason}")
    cells = row.cells
    made = [
        Cell(cells[index] if index < len(cells) else "", tuple(dict.fromkeys(reasons.get(index, ()))))
        for index in shown
    ]
    return Row(row.row, made, tuple(dict.fromkeys(loose)))


# -- a dry run -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """Some rows before and after, in the columns of the table."""

    columns: Sequence[str]
    rows: Sequence[ChangedRow]


@dataclass(frozen=True, slots=True)
class ChangedRow:
    number: int
    new: bool
    cells: Sequence[tuple[str, str | None]]  # the new value; the old one if it differs


def changes(found: ImportSchema) -> Changes:
    """Return the sample of a dry run without columns that say nothing: empty ones, and those that are not in the file
    and equal in all rows, such as the company."""
    sample = (found.result_json or {}).get("sample") or ()
    names = dict.fromkeys(name for change in sample for name in change["after"])
    in_file = found.meta_json.get("columns") or {}
    shown = [name for name in names if _tells(sample, name, name in in_file)]
    return Changes(shown, [_changed(change, shown) for change in sample])


def _tells(sample: Sequence[Mapping[str, Any]], name: str, in_file: bool) -> bool:
    values = {_text(side.get(name)) for change in sample for side in (change["before"] or {}, change["after"]) if side}
    return len(values) > 1 or (in_file and values != {""})


def _changed(change: Mapping[str, Any], names: Iterable[str]) -> ChangedRow:
    before, after = change["before"], change["after"]
    cells = []
    for name in names:
        is_now = _text(after.get(name))
        was = None if before is None else _text(before.get(name))
        cells.append((is_now, None if was == is_now else was))
    return ChangedRow(change["row"], before is None, cells)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
