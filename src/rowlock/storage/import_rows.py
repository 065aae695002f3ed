"""Converts import records to and from the columns of the SQL stores."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
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
    chunk_of,
)
from rowlock.storage.records import JobId, NewJob

_CANCELLED = 3
_ENDS = {
    None: "its job was deleted before its end was recorded",
    1: "its job ended without recording what it did",
    2: "its job failed",
    _CANCELLED: "its job was cancelled",
}


def import_record(row: Any) -> ImportRecord:
    """Converts a row of the statement `import_records`, whose columns are in the order of the record's fields."""
    fields = [*row[:2], ImportStatus(row[2]), *row[3:15], Counts(*row[15:21]), *row[21:]]
    return ImportRecord(*fields)


def chunk_record(row: Any) -> ChunkRecord:
    """Converts a row of the statement `import_chunks`."""
    number, status, job_id, *counts, groups, notes, finished_at, planned_rows = row
    found = tuple(ErrorGroup(*group) for group in orjson.loads(groups))
    return ChunkRecord(number, ChunkStatus(status), job_id, Counts(*counts), found, notes, finished_at, planned_rows)


def chunk_columns(result: ChunkResult) -> dict[str, Any]:
    """Returns a chunk's result by column, in the order of the statement `record_chunk`."""
    groups = [[group.column, group.code, group.count] for group in result.groups]
    return {
        **asdict(result.counts),
        "error_count": sum(group.count for group in result.groups),
        "error_groups": _dumped(groups),
        "notes": result.notes,
    }


def error_columns(errors: Iterable[ErrorRow]) -> list[tuple[int, str, str]]:
    """Returns (row, errors, cells) of each row, with several errors of one row merged."""
    merged: dict[int, tuple[list[Any], Sequence[str]]] = {}
    for error in errors:
        said, _ = merged.setdefault(error.row, ([], error.cells))
        said += [[one.column, one.code, one.reason, one.value] for one in error.errors]
    return [(row, _dumped(said), _dumped(list(cells))) for row, (said, cells) in merged.items()]


def error_page(rows: Iterable[Any], limit: int) -> ErrorPage:
    """Makes a page from (row, errors, cells) in order of rows, read with `limit + 1`."""
    found = []
    for number, told in groupby(rows, key=lambda row: int(row[0])):
        parts = list(told)
        errors = tuple(RowError(number, *error) for part in parts for error in orjson.loads(part[1]))
        found.append(ErrorRow(number, errors, tuple(orjson.loads(parts[0][2]))))
    kept = found[:limit]
    return ErrorPage(kept, kept[-1].row if len(found) > limit and kept else None)


def import_page(found: Sequence[ImportRecord], limit: int) -> ImportPage:
    """Makes a page from records read with `limit + 1`."""
    kept = found[:limit]
    return ImportPage(kept, kept[-1].id if len(found) > limit and kept else None)


def checked_cursor(cursor: str | None) -> str | None:
    """Returns the id at which the last page ended; raises ValueError for a cursor that no page returned."""
    if cursor is not None and not is_uuid(cursor):
        raise ValueError(f"{cursor[:40]!r} is not a valid cursor: use nextCursor of a page of imports")
    return cursor and cursor.lower()


def listing(type: str | None, company_id: str | None, status: ImportStatus | None) -> str:
    """Returns the name of the most selective statement for this filter."""
    if company_id is not None:
        return "imports_of_company"
    if status is not None:
        return "imports_of_status"
    return "imports" if type is None else "imports_of_type"


def may_be(import_id: str, job_id: JobId | None) -> bool:
    """Returns whether both ids are well-formed; a `job_id` of None always is."""
    return is_uuid(import_id) and (job_id is None or is_uuid(job_id))


def resumed_ends(total_chunks: int | None, jobs: Mapping[int, NewJob]) -> list[JobId | None]:
    """Returns the ids of the parent and the finish job among these jobs."""
    return [jobs[index].id if index is not None and index in jobs else None for index in (-1, total_chunks)]


def needed_indexes(total_chunks: int | None, waiting: Iterable[int]) -> set[int]:
    """Returns what must run again: the parent (-1) if never planned, else the chunks not done, else the finish job."""
    if total_chunks is None:
        return {-1}
    return set(waiting) or {total_chunks}


_MESSAGE_CHARS_MAX = 1_000


def final(status: ImportStatus) -> ImportStatus:
    """Returns the status; raises ValueError if an import cannot end with it."""
    if not status.final:
        raise ValueError(f"an import cannot end as {status}: end it as SUCCEEDED, FAILED or CANCELLED")
    return status


def planned_index(index: int, total_chunks: int) -> int:
    """Returns the index; raises ValueError unless it is a chunk of this plan, a part of one, or the finish job."""
    if not (0 <= index <= total_chunks or (index < -1 and chunk_of(index) < total_chunks)):
        raise ValueError(f"there is no chunk {index}: the import was planned with {total_chunks}")
    return index


def parts_of(chunks: Iterable[ChunkRecord], chunk: int) -> list[ChunkRecord]:
    """Returns the parts of a chunk in order."""
    parts = [each for each in chunks if each.index < -1 and chunk_of(each.index) == chunk]
    return sorted(parts, key=lambda part: -part.index)


def joined_parts(chunks: Iterable[ChunkRecord]) -> list[ChunkRecord]:
    """Returns the chunks, each with the counts of its parts added."""
    lines = list(chunks)
    parts = defaultdict[int, list[Counts]](list)
    for line in lines:
        if line.index < -1:
            parts[chunk_of(line.index)].append(line.counts)
    return [replace(line, counts=summed(line.counts, *parts.get(line.index, ()))) for line in lines if line.index >= -1]


def summed(*counts: Counts) -> Counts:
    return Counts(**{name: sum(getattr(one, name) for one in counts) for name in Counts.__dataclass_fields__})


def death(chunk: int | None, job_id: JobId, outcome: int | None, error: str | None) -> tuple[str, str]:
    """Returns (message, error) for an import that waits for a job that is over or gone."""
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
    except TypeError:  # lone surrogates, which UTF-8 cannot encode
        return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
