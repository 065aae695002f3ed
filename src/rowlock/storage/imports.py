"""What passes between the imports and a store: the import, its chunks, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from rowlock.storage.records import JobId, NewJob

ImportId = JobId
"""An import has the id of its parent job."""


class ImportStatus(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        return self not in (ImportStatus.QUEUED, ImportStatus.RUNNING)

    @property
    def resumable(self) -> bool:
        return self in (ImportStatus.FAILED, ImportStatus.CANCELLED)


class ChunkStatus(StrEnum):
    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class NewImport:
    """A file that was received and is to be imported."""

    id: ImportId
    type: str
    file_name: str  # as the user calls it
    path: str  # where its bytes are, in the blob store
    sha256: str
    size_bytes: int
    company_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    options: str = "{}"  # JSON: sheet, dry run, …
    once: bool = True  # False: the same file again is no duplicate (forced, or a dry run)
    scope: str | None = None  # what it wipes to replace: no two of the same run at the same time; None: nothing


@dataclass(frozen=True, slots=True)
class Counts:
    """Where the rows went: each in exactly one."""

    rows: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    duplicate: int = 0
    invalid: int = 0

    @property
    def balanced(self) -> bool:
        return self.rows == self.inserted + self.updated + self.unchanged + self.duplicate + self.invalid


@dataclass(frozen=True, slots=True)
class RowError:
    """One bad cell, or one bad row."""

    row: int
    column: str | None  # as the header of the file has it; None: the row as a whole
    code: str
    reason: str
    value: str | None = None  # cut, and redacted where the field is secret


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """How many errors there are of one column and code."""

    column: str | None
    code: str
    count: int


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row with errors: all of them, and the row's own cells in the order of the file."""

    row: int
    errors: Sequence[RowError]
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """What became of a chunk; it replaces what an earlier attempt said."""

    counts: Counts
    groups: Sequence[ErrorGroup] = ()
    errors: Sequence[ErrorRow] = ()
    notes: str = "{}"  # JSON, of a dry run: what would change


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    index: int
    status: ChunkStatus
    job_id: JobId
    counts: Counts
    groups: Sequence[ErrorGroup]
    notes: str
    finished_at: datetime | None
    planned_rows: int = 0  # how many the plan gave it


@dataclass(frozen=True, slots=True)
class ImportRecord:
    id: ImportId
    type: str
    status: ImportStatus
    file_name: str
    path: str
    sha256: str
    size_bytes: int
    company_id: str | None
    project_id: str | None
    user_id: str | None
    options: str
    progress: int  # 0-10 planning, 10-99 chunks, 100 when it is over well; never backwards
    message: str | None
    total_chunks: int | None  # None until it is planned
    completed_chunks: int
    counts: Counts  # summed over the chunks that are done
    error_count: int  # bad cells and rows, summed over the chunks that are done
    meta: str  # JSON: how it was read and split
    error: str | None  # JSON, of a failed one
    result: str | None  # JSON, what the finish hook returned
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    swept_at: datetime | None  # its files are gone
    scope: str | None  # what it wipes to replace; None: nothing, and it runs beside any other


@dataclass(frozen=True, slots=True)
class Added:
    """The import, and whether this call made it: False when the same file was there already."""

    record: ImportRecord
    created: bool


class Started(StrEnum):
    """What the parent job finds when it begins."""

    STARTED = "started"  # it is RUNNING, and this job's to plan
    PLANNED = "planned"  # an earlier attempt has planned it: nothing to do
    BUSY = "busy"  # another of its scope runs
    OVER = "over"  # it has ended, or is another job's: nothing to do


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    job: NewJob
    rows: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a file was split; its chunk jobs exist when this is recorded."""

    chunks: Sequence[PlannedChunk]
    meta: str
    refused: ChunkResult = field(default_factory=lambda: ChunkResult(Counts()))  # records that could not be read


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """How the import stands after a chunk was recorded."""

    status: ImportStatus
    completed: int
    total: int
    errors: int  # bad cells and rows so far


@dataclass(frozen=True, slots=True)
class ErrorPage:
    rows: Sequence[ErrorRow]
    next_row: int | None  # ask again with after_row= this


@dataclass(frozen=True, slots=True)
class ImportPage:
    imports: Sequence[ImportRecord]
    next_cursor: str | None
