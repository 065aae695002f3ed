"""Between the records of imports and the columns that both SQL stores keep them in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import orjson

from rowlock.ids import is_uuid
from rowlock.storage.imports import (
    ChunkRecord,
    ChunkResult,
    ChunkStatus,
    Counts,
    ErrorGroup,
    ErrorPage,
    ErrorRow,
    ImportPage,
    ImportRecord,
    ImportStatus,
    RowError,
)
from rowlock.storage.records import JobId, NewJob

_CANCELLED = 3
_ENDS = {
    None: "its job was removed before its end was noted",
    1: "its job ended without recording what it did",
    2: "its job failed",
    _CANCELLED: "its job was cancelled",
}


def import_record(row: Any) -> ImportRecord:
    """A row of the statement `import_records`, in the order of the record's fields."""
    fields = [*row[:2], ImportStatus(row[2]), *row[3:15], Counts(*row[15:21]), *row[21:]]
    return ImportRecord(*fields)


def chunk_record(row: Any) -> ChunkRecord:
    """A row of the statement `import_chunks`, in its order."""
    number, status, job_id, *counts, groups, notes, finished_at, planned_rows = row
    found = tuple(ErrorGroup(*group) for group in orjson.loads(groups))
    return ChunkRecord(number, ChunkStatus(status), job_id, Counts(*counts), found, notes, finished_at, planned_rows)


def chunk_columns(result: ChunkResult) -> dict[str, Any]:
    """What is said of a chunk, by column and in the order of the statement `record_chunk`."""
    groups = [[group.column, group.code, group.count] for group in result.groups]
    return {
        **asdict(result.counts),
        "error_count": sum(group.count for group in result.groups),
        "error_groups": _dumped(groups),
        "notes": result.notes,
    }


def error_columns(errors: Iterable[ErrorRow]) -> list[tuple[int, str, str]]:
    """(row, errors, cells) of each row; what is said twice of a row is kept together."""
    merged: dict[int, tuple[list[Any], Sequence[str]]] = {}
    for error in errors:
        said, _ = merged.setdefault(error.row, ([], error.cells))
        said += [[one.column, one.code, one.reason, one.value] for one in error.errors]
    return [(row, _dumped(said), _dumped(list(cells))) for row, (said, cells) in merged.items()]


def error_page(rows: Iterable[Any], limit: int) -> ErrorPage:
    """A page of (row, errors, cells) in order of rows, one row more having been asked for."""
    found = []
    for number, told in groupby(rows, key=lambda row: int(row[0])):
        parts = list(told)
        errors = tuple(RowError(number, *error) for part in parts for error in orjson.loads(part[1]))
        found.append(ErrorRow(number, errors, tuple(orjson.loads(parts[0][2]))))
    kept = found[:limit]
    return ErrorPage(kept, kept[-1].row if len(found) > limit and kept else None)


def import_page(found: Sequence[ImportRecord], limit: int) -> ImportPage:
    """A page of what was found, one more having been asked for."""
    kept = found[:limit]
    return ImportPage(kept, kept[-1].id if len(found) > limit and kept else None)


def checked_cursor(cursor: str | None) -> str | None:
    """Where the last page ended; a cursor that no page came with is a ValueError."""
    if cursor is not None and not is_uuid(cursor):
        raise ValueError(f"{cursor[:40]!r} is not a cursor that a page of imports came with")
    return cursor and cursor.lower()


def listing(type: str | None, company_id: str | None, status: ImportStatus | None) -> str:
    """The statement that finds these imports by the narrowest way to them."""
    if company_id is not None:
        return "imports_of_company"
    if status is not None:
        return "imports_of_status"
    return "imports" if type is None else "imports_of_type"


def may_be(import_id: str, job_id: JobId | None) -> bool:
    """Whether there can be such an import and such a job; where no job is named, any will do."""
    return is_uuid(import_id) and (job_id is None or is_uuid(job_id))


def resumed_ends(total_chunks: int | None, jobs: Mapping[int, NewJob]) -> list[JobId | None]:
    """The jobs among these that are the parent and the finish job."""
    return [jobs[index].id if index is not None and index in jobs else None for index in (-1, total_chunks)]


def needed_indexes(total_chunks: int | None, waiting: Iterable[int]) -> set[int]:
    """What must run again: the parent (-1) of what was never planned, the chunks not done, or else the finish job."""
    if total_chunks is None:
        return {-1}
    return set(waiting) or {total_chunks}


_MESSAGE_CHARS_MAX = 1_000


def final(status: ImportStatus) -> ImportStatus:
    """The status, if an import can end with it."""
    if not status.final:
        raise ValueError(f"an import does not end as {status}: end it as SUCCEEDED, FAILED or CANCELLED")
    return status


def planned_index(index: int, total_chunks: int) -> int:
    """The index, if a chunk of this plan, or what its finish job did, can have it."""
    if not 0 <= index <= total_chunks:
        raise ValueError(f"there is no chunk {index}: the import was planned with {total_chunks}")
    return index


def death(chunk: int | None, job_id: JobId, outcome: int | None, error: str | None) -> tuple[str, str]:
    """(message, error) of an import that waits for a job which is over, or gone."""
    cancelled = outcome == _CANCELLED
    told = {
        "code": "job_cancelled" if cancelled else "job_failed",
        "message": error if error and outcome != 1 else _ENDS[outcome],
        "jobId": job_id,
        "chunk": chunk,
    }
    what = "a job of this import" if chunk is None else f"chunk {chunk}"
    reason = "was cancelled" if cancelled else f"failed: {told['message']}"
    return f"{what} {reason}"[:_MESSAGE_CHARS_MAX], _dumped(told)


def _dumped(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a text that UTF-8 cannot say
        return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
