"""The errors of a chunk that stopped its import.

Such a chunk is not recorded: a resumed import starts it over. Its errors are kept with the error of the import, which a
resume clears, and are shown like recorded ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rowlock.jobs.payload import loads
from rowlock.storage.imports import ErrorGroup, ErrorPage, ErrorRow, ImportRecord, ImportStatus, RowError

STOPPED = "stopped"


def _found(record: ImportRecord) -> dict[str, Any]:
    if record.status is not ImportStatus.FAILED or record.error is None:
        return {}
    found = loads(record.error).get(STOPPED)
    return dict(found) if isinstance(found, dict) else {}


def groups_of(record: ImportRecord) -> list[ErrorGroup]:
    """Return the errors of the chunk that stopped this import, by column and code."""
    return [ErrorGroup(*group) for group in _found(record).get("groups", ())]


def corrected(record: ImportRecord) -> dict[str, int]:
    """Return the counts of a failed import that differ from those of its chunks, by the names of their fields."""
    if record.status is not ImportStatus.FAILED:
        return {}
    found, counts, meta = _found(record), record.counts, loads(record.meta)
    failed = int(found.get("failed", 0))
    # Rows that wait for the finish job, in a staging table or a file, are not counted by their chunks.
    rows = int(meta["rows"]) if (meta.get("staged") or meta.get("waits")) and "rows" in meta else counts.rows + failed
    errors = record.error_count + int(found.get("errorCount", 0))
    return {"total_rows": rows, "failed": counts.invalid + failed, "error_count": errors}


def with_stopped(record: ImportRecord, page: ErrorPage, after_row: int, limit: int) -> ErrorPage:
    """Return a page of recorded errors, merged with those of the chunk that stopped the import."""
    stopped = [
        ErrorRow(row["row"], [RowError(row["row"], *error) for error in row["errors"]], row["cells"])
        for row in _found(record).get("rows", ())
        if row["row"] > after_row
    ]
    if not stopped:
        return page
    last = page.next_row
    rows: Sequence[ErrorRow] = sorted(
        [*page.rows, *(row for row in stopped if last is None or row.row <= last)], key=lambda row: row.row
    )
    if len(rows) > limit:
        rows, last = rows[:limit], rows[limit - 1].row
    return ErrorPage(rows, last)
