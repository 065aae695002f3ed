"""The store's verbs for imports, each with its guarantee; `contract` has those for jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from rowlock.storage.imports import (
    Added,
    ChunkEnd,
    ChunkRecord,
    ChunkResult,
    ErrorPage,
    ImportId,
    ImportPage,
    ImportRecord,
    ImportStatus,
    NewImport,
    Plan,
    Started,
)
from rowlock.storage.records import JobId, NewJob
from rowlock.storage.tables import Column, FoundTable, Load, Loaded

if TYPE_CHECKING:
    import polars as pl


class ImportTransaction(Protocol):
    """The writes of an import inside a transaction, committed together with the end of its job."""

    def staging_table(self, import_id: ImportId) -> str:
        """Returns the name of an import's staging table; on PostgreSQL it is in Rowlock's schema."""

    async def plan_import(self, import_id: ImportId, plan: Plan, *, job_id: JobId) -> bool:
        """Records the chunks and enqueues their jobs; returns False and does nothing unless RUNNING and unplanned.

        Also False if `job_id` is not the import's parent job: a resume replaces it. Rows that the reader refused are
        kept as a finished chunk with the index -1, outside the total. So is a chunk whose index is the total: the work
        of the finish job itself.
        """

    async def end_chunk(
        self, import_id: ImportId, index: int, result: ChunkResult, *, job_id: JobId | None = None
    ) -> ChunkEnd | None:
        """Records a chunk's result in place of that of an earlier attempt; returns None unless the import is RUNNING.

        With `job_id`, also returns None and records nothing if a resume gave the chunk to another job. Raises
        ValueError for an index outside the plan.

        A chunk can be loaded in several transactions. Each records a part under its `part_index`; the transaction that
        records the last part also ends the chunk, with no rows of its own. Parts count in the sums. A part is recorded
        once, and only while its chunk is not done; otherwise the verb returns None and records nothing.

        Locks the import to the end of the transaction: of chunks that end at the same time each sees those before it,
        so exactly one sees that all are done.
        """

    async def queue_finish(self, import_id: ImportId, job: NewJob) -> None:
        """Enqueues the job that finishes an import, as one of the import's jobs.

        Does nothing unless the import is RUNNING, all its chunks are done, and it has no finish job yet.
        """

    async def begin_finish(self, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
        """Locks an import to the end of the transaction and returns it with its current totals.

        Returns None unless it is RUNNING and planned, no chunk waits, and `job_id` is its finish job. The lock blocks
        all other attempts to end it.
        """

    async def end_import(
        self,
        import_id: ImportId,
        status: ImportStatus,
        *,
        message: str,
        error: str | None,
        result: str | None,
        job_id: JobId | None = None,
    ) -> bool:
        """Ends an import; returns False and does nothing if it has ended already.

        With `job_id`, also returns False unless that is the parent job of an unplanned import, the job of one of its
        chunks, or its finish job. Raises ValueError for a status that is not final.
        """

    async def table(self, name: str) -> FoundTable | None:
        """Returns the schema of a user's table; None if the table does not exist."""

    async def create_table(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Creates a table with these columns; the key, unless empty, becomes its primary key."""

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        """Deletes the rows whose columns have these values (all rows if `scope` is empty); returns how many."""

    async def check_references(self, table: str) -> None:
        """Raises ImportFault if rows of other tables refer to wiped rows; deferred constraints only refuse a commit."""

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        """Loads the rows of a frame into a table and returns the counts by outcome.

        The frame has the columns of the load, converted, and `row`. No key is NULL and none occurs twice. Rows that the
        database refuses do not affect the others.
        """

    async def remove_replaced(self, load: Load, rows_max: int) -> int:
        """Deletes up to `rows_max` rows that an import's loads have not replaced (`load.replaces`); counts them."""

    async def merge(self, load: Load, staged: str) -> Loaded:
        """Merges all rows of a staging table into a table; if rows are refused, keeps nothing and returns them.

        The staging table was made by `create_table` with the columns of the load and `row`.
        """

    async def unstage(self, staged: str, rows: Sequence[int]) -> None:
        """Deletes rows of a staging table by row number."""

    async def drop_table(self, name: str) -> None:
        """Removes a staging table if it exists."""

    async def dry_run(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        """Runs `load`, after wiping the scope `wiped` if given, returns what would change, and rolls it back.

        If the table does not exist yet, every row counts as inserted.
        """


class ImportVerbs(Protocol):
    """Imports, their chunks and their errors."""

    async def add_import(self, new: NewImport, job: NewJob) -> Added:
        """Records an import and enqueues its parent job, both or none; for a duplicate returns the first import.

        A duplicate has the same id (so that a caller can repeat a call whose answer was lost), or the same type,
        company and SHA-256 as an import with `once` that has not failed or been cancelled.
        """

    async def get_import(self, import_id: ImportId) -> ImportRecord | None:
        """Returns one import with the totals of its finished chunks; None for an unknown or malformed id."""

    async def imports(
        self,
        *,
        type: str | None,
        company_id: str | None,
        status: ImportStatus | None,
        limit: int,
        cursor: str | None = None,
    ) -> ImportPage:
        """Returns imports, newest first. Raises ValueError for a cursor that no page returned."""

    async def changed_imports(self, since: datetime, limit: int) -> list[ImportRecord]:
        """Returns imports that changed at or after `since`, the oldest change first, each as it is now."""

    async def chunks(self, import_id: ImportId) -> list[ChunkRecord]:
        """Returns the chunks of an import by index, including the reader's row errors (-1) and parts of chunks."""

    async def parts(self, import_id: ImportId, chunk: int) -> list[ChunkRecord]:
        """Returns the finished parts of a chunk in order."""

    async def import_errors(self, import_id: ImportId, *, after_row: int, limit: int) -> ErrorPage:
        """Returns the rows with errors of finished chunks, by row number; each row once, with all of its errors."""

    async def start_import(self, import_id: ImportId, message: str, *, job_id: JobId | None = None) -> Started:
        """Marks the start of planning: QUEUED becomes RUNNING, once for all attempts of the parent job.

        Returns BUSY while another import of the same scope runs. Returns OVER and does nothing if `job_id` is given and
        is not the parent job.
        """

    async def note_import(
        self, import_id: ImportId, progress: int, message: str, *, job_id: JobId | None = None
    ) -> bool:
        """Records the progress of planning, which never goes backwards; returns False if the import is not RUNNING.

        Also returns False and does nothing if `job_id` is given and is not the parent job.
        """

    async def cancel_import(self, import_id: ImportId) -> list[JobId] | None:
        """Cancels an import and returns its jobs, which the caller must cancel; None if the import is over.

        After this no chunk of the import is recorded.
        """

    async def resume_import(self, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
        """Resumes a failed or cancelled import with these jobs, one for each chunk that is not done.

        The index -1 stands for the parent job of an import that was never planned (it is QUEUED again), and the total
        for the finish job of an import whose chunks are all done. Clears `error` and `finished_at`.

        Returns False and does nothing unless the import is FAILED or CANCELLED, its files are kept, and the indexes are
        exactly those not done. Also False while another import of the same file is in the way, or one of its scope
        runs. A planned import can never be resumed once another of its scope has started: that one wipes the rows that
        its chunks have loaded, so the remaining chunks would mix two files.
        """

    async def close_imports(self, limit: int) -> list[ImportRecord]:
        """Fails up to `limit` imports whose awaited parent, chunk or finish job is over or gone; returns them."""

    async def cleanable_imports(self, days: float, limit: int) -> list[ImportRecord]:
        """Returns imports whose files can be deleted and are not yet marked for it (see `clean_import`).

        These are imports that succeeded, and failed or cancelled imports and dry runs that ended more than `days` ago.
        """

    async def trim_errors(self, import_id: ImportId, keep: int) -> None:
        """Deletes the rows with errors beyond the first `keep`; they stay counted.

        Not part of a transaction: chunks that end at the same time would delete the same rows.
        """

    async def clean_import(self, import_id: ImportId, *, errors_kept: int | None = None) -> bool:
        """Marks the files of an import for deletion, so it cannot be resumed; returns False if it is not over.

        Idempotent: the time of the first call is kept. With `errors_kept`, also deletes the rows with errors beyond the
        first `errors_kept`; they stay counted.
        """

    async def prune_imports(self, days: float, limit: int) -> int:
        """Removes up to `limit` imports without files that ended over `days` ago, oldest first; returns how many.

        Their chunks and errors go with them; their jobs stay. An import that prevents the resume of an older one of its
        scope stays until the files of the older one are gone.
        """
