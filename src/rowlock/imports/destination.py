"""Whether a table can take the rows of an importer, found out before anything runs."""

from __future__ import annotations

from rowlock.errors import FileRefused
from rowlock.imports.importer import ImportType
from rowlock.storage.tables import FoundTable, Kind

_TAKES: dict[Kind, set[Kind]] = {
    Kind.TEXT: set(Kind),
    Kind.INTEGER: {Kind.INTEGER, Kind.BOOLEAN},
    Kind.DECIMAL: {Kind.DECIMAL, Kind.INTEGER, Kind.BOOLEAN},
    Kind.FLOAT: {Kind.FLOAT, Kind.DECIMAL, Kind.INTEGER},
    Kind.BOOLEAN: {Kind.BOOLEAN},
    Kind.DATE: {Kind.DATE},
    Kind.DATETIME: {Kind.DATETIME, Kind.DATE},
    Kind.TIME: {Kind.TIME},
    Kind.UUID: {Kind.UUID},
    Kind.JSON: {Kind.JSON},
}


def check_table(declared: ImportType, table: FoundTable | None) -> None:
    """Raise FileRefused that names everything that does not fit."""
    if table is None:
        raise FileRefused(
            f"there is no table {declared.into!r}: create it, or let importer {declared.name!r} do so (create=True)",
            code="table_mismatch",
        )
    if wrong := _mismatches(declared, table):
        raise FileRefused(
            f"the importer {declared.name!r} does not fit the table {declared.into!r}: {'; '.join(wrong)}",
            code="table_mismatch",
            more={"problems": wrong},
        )


def _mismatches(declared: ImportType, table: FoundTable) -> list[str]:
    there = {column.name: column for column in table.columns}
    wrong = []
    for column in declared.columns:
        found = there.get(column.name)
        if found is None:
            wrong.append(f"it has no column {column.name!r}")
        elif found.kind is None or column.kind not in _TAKES[found.kind]:
            wrong.append(f"column {column.name!r} is {found.type}, and the values are {column.kind}")
    filled = {column.name for column in declared.columns}
    wrong += [
        f"column {found.name!r} must have a value (NOT NULL), and the importer gives none"
        for found in table.columns
        if found.name not in filled and not found.nullable and not found.has_default
    ]
    if declared.key and frozenset(declared.key) not in table.keys:
        wrong.append(f"it has no unique index on ({', '.join(declared.key)}): create one, rows are told apart by it")
    folded = {field.name for field in declared.fields if field.lower or field.upper}
    wrong += [
        f"key column {name!r} takes texts for equal that differ in letter case: let the model lower-case it "
        f"(StringConstraints(to_lower=True))"
        for name in declared.key
        if name in there and there[name].folds and name not in folded
    ]
    return wrong
