"""Records of imports: the import, its chunks, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from rowlock.storage.records import JobId, NewJob, WorkerId

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


ATTEMPT_FAILED = "an attempt failed and is retried"
"""Prefix of an import's message while its job waits for a retry."""


class ChunkStatus(StrEnum):
    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class NewImport:
    """A received file to import."""

    id: ImportId
    type: str
    file_name: str  # as the user named it
    path: str  # name in the import store
    sha256: str
    size_bytes: int
    company_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    options: str = "{}"  # JSON: sheet, dry run, …
    once: bool = True  # False: skip the duplicate check (--force, or a dry run)
    scope: str | None = None  # the rows that it replaces: imports of one scope run one at a time; None: none


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by outcome: each row is in exactly one."""

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
    column: str | None  # as in the header of the file; None: the whole row
    code: str
    reason: str
    value: str | None = None  # shortened; redacted if the field is secret


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """The number of errors of one column and code."""

    column: str | None
    code: str
    count: int


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row with all of its errors, and its own cells in the order of the file."""

    row: int
    errors: Sequence[RowError]
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The outcome of a chunk; replaces that of an earlier attempt."""

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
    planned_rows: int = 0  # number of rows in the plan


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
    progress: int  # 0-10 planning, 10-99 chunks, 100 succeeded; never backwards
    message: str | None
    total_chunks: int | None  # None until it is planned
    completed_chunks: int
    counts: Counts  # summed over the finished chunks
    error_count: int  # bad cells and rows, summed over the finished chunks
    meta: str  # JSON: how it was read and split
    error: str | None  # JSON, if it failed
    result: str | None  # JSON returned by the finish hook
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    cleaned_at: datetime | None  # when its files were marked for deletion
    scope: str | None  # the rows that it replaces; None: none, and it runs beside any other import


@dataclass(frozen=True, slots=True)
class Added:
    """The import, and whether this call created it: False for a duplicate."""

    record: ImportRecord
    created: bool


PARTS_MAX = 10_000


def part_index(chunk: int, part: int) -> int:
    """Returns the ledger index of a part of a chunk that is loaded in several transactions."""
    return -2 - (chunk * PARTS_MAX + part)


def chunk_of(index: int) -> int:
    """Returns the chunk that the part with this index belongs to."""
    return (-2 - index) // PARTS_MAX


@dataclass(frozen=True, slots=True)
class ImportStep:
    """A step of an import, and the attempt that runs it."""

    import_id: ImportId
    chunk: int  # its index; -1: the parent job
    job_id: JobId
    owner: WorkerId
    lease: int | None  # None: the attempt has none, in resilient mode
    trial: bool = False  # the caller rolls it back; a store that cannot do so refuses such writes


@dataclass(frozen=True, slots=True)
class TransactionBounds:
    """Size limits of one transaction, for a store that keeps open transactions in memory."""

    chunk_rows: int
    chunk_bytes: int
    """Limit of a chunk, of which several fit in memory at once."""
    row_bytes: int
    """Memory that a row takes besides its text."""
    bytes_max: int
    """Limit of a transaction that runs alone on the server."""

    def rows_max(self, rows: int, text_bytes: int) -> int:
        """Returns how many rows fit in one transaction, given that `rows` rows have `text_bytes` of text."""
        return int(self.bytes_max / (self.row_bytes + text_bytes / max(rows, 1)))


class Started(StrEnum):
    """What the parent job finds at its start."""

    STARTED = "started"  # it is RUNNING, and this job plans it
    PLANNED = "planned"  # an earlier attempt has planned it
    BUSY = "busy"  # another import of its scope runs
    OVER = "over"  # it has ended, or has another parent job


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    job: NewJob
    rows: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a file was split; recording it enqueues the chunk jobs."""

    chunks: Sequence[PlannedChunk]
    meta: str
    refused: ChunkResult = field(default_factory=lambda: ChunkResult(Counts()))  # records that could not be read


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """The state of the import after a chunk was recorded."""

    status: ImportStatus
    completed: int
    total: int
    errors: int  # bad cells and rows so far


@dataclass(frozen=True, slots=True)
class ErrorPage:
    rows: Sequence[ErrorRow]
    next_row: int | None  # pass as after_row for the next page


@dataclass(frozen=True, slots=True)
class ImportPage:
    imports: Sequence[ImportRecord]
    next_cursor: str | None
