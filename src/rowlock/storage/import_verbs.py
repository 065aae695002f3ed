"""The verbs of a store for imports, each with its guarantee; see `base` for those of jobs."""

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
    """What an import does inside a transaction, together with the end of its job."""

    async def plan_import(self, import_id: ImportId, plan: Plan, *, job_id: JobId) -> bool:
        """Record the chunks and enqueue their jobs; False, and nothing else, unless it is RUNNING and not planned.

        Nor where the job is not its parent job: since a resume, that is another.

        What the reader refused is kept as a chunk that is done, with the index -1; it is not one of the total. Nor is
        a chunk whose index is the total: what the finish job did itself.
        """

    async def end_chunk(
        self, import_id: ImportId, index: int, result: ChunkResult, *, job_id: JobId | None = None
    ) -> ChunkEnd | None:
        """Record what became of a chunk, in place of what an earlier attempt said; None unless the import is RUNNING.

        Where a job is named, and the chunk is another job's since a resume, the answer is None and nothing is recorded.
        An index that the plan does not have is a ValueError.

        The import is locked from here to the end of the transaction: of chunks that end at the same time each sees
        those before it, so one of them, and only one, sees that all are done.
        """

    async def queue_finish(self, import_id: ImportId, job: NewJob) -> None:
        """Enqueue the job that finishes an import; it counts as one of its jobs.

        Nothing happens unless the import is RUNNING, all its chunks are done, and it has no such job yet.
        """

    async def begin_finish(self, import_id: ImportId, job_id: JobId) -> ImportRecord | None:
        """Lock an import to the end of the transaction, and answer it with its totals as of now.

        None unless it is RUNNING and planned, none of its chunks waits, and this is its finish job. Whoever would end
        it waits from here on.
        """

    async def trim_errors(self, import_id: ImportId, keep: int) -> None:
        """Forget the rows with errors beyond the first so many; they stay counted."""

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
        """End an import; False, and nothing else, where it has ended already. To end it as RUNNING is a ValueError.

        Where a job is named, it is False too unless that is the parent job of what is not planned, or the job of one of
        its chunks, or its finish job.
        """

    async def table(self, name: str) -> FoundTable | None:
        """The shape of a table of the user's; None where there is none."""

    async def create_table(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Create a table with these columns; the key, where there is one, is its primary key."""

    async def wipe(self, table: str, scope: Mapping[str, Any]) -> int:
        """Delete the rows whose columns have these values (all rows where none are given), and count them."""

    async def load(self, load: Load, frame: pl.DataFrame) -> Loaded:
        """Put the rows of a frame into a table and count what became of each.

        The frame has the columns of the load, converted, and `row`. No key is NULL, none is there twice. Rows that the
        database refuses do not harm the others.
        """

    async def merge(self, load: Load, staged: str) -> Loaded:
        """Put all rows of a staging table into a table; where some are refused, nothing is kept, and they are named.

        The staging table was made by `create_table` with the columns of the load and `row`.
        """

    async def drop_table(self, name: str) -> None:
        """Remove a staging table, if it is there."""

    async def rehearse(self, load: Load, frame: pl.DataFrame, *, wiped: Mapping[str, Any] | None = None) -> Loaded:
        """Do the same, after a wipe of this scope where one is given, look at what would change, and undo it.

        Where there is no such table yet, every row is one to insert.
        """


class ImportVerbs(Protocol):
    """Where imports rest."""

    async def add_import(self, new: NewImport, job: NewJob) -> Added:
        """Record an import and enqueue its parent job, both or none; of the same file twice the first is answered.

        The same is: type, company and SHA-256, of one that may be taken for it (`once`) and has not failed or been
        cancelled; and the same id, so that a caller whose answer was lost may ask again.
        """

    async def get_import(self, import_id: ImportId) -> ImportRecord | None:
        """One import, its totals summed over the chunks that are done; an id that is not a UUID is nobody's."""

    async def imports(
        self,
        *,
        type: str | None,
        company_id: str | None,
        status: ImportStatus | None,
        limit: int,
        cursor: str | None = None,
    ) -> ImportPage:
        """Imports, newest first. A cursor that no page came with is a ValueError."""

    async def changed_imports(self, since: datetime, limit: int) -> list[ImportRecord]:
        """Imports that changed at or after this moment, the oldest change first, each as it is now."""

    async def chunks(self, import_id: ImportId) -> list[ChunkRecord]:
        """The chunks of an import by index, that of the reader's refusals (-1) too."""

    async def import_errors(self, import_id: ImportId, *, after_row: int, limit: int) -> ErrorPage:
        """Rows with errors, by row number, of chunks that are done; each row once, with all that is said of it."""

    async def start_import(self, import_id: ImportId, message: str, *, job_id: JobId | None = None) -> Started:
        """Say that planning begins: QUEUED becomes RUNNING, once for all attempts of the parent job.

        Of two imports of the same scope one is BUSY while the other runs. Where a job is named that is not the parent
        job, the answer is OVER, and nothing happens.
        """

    async def note_import(
        self, import_id: ImportId, progress: int, message: str, *, job_id: JobId | None = None
    ) -> bool:
        """Tell how far planning is; progress never goes backwards. False when it is not RUNNING any more.

        Where a job is named that is not the parent job, it is False too, and nothing happens.
        """

    async def cancel_import(self, import_id: ImportId) -> list[JobId] | None:
        """Cancel an import that is not over and name its jobs, which are the caller's to cancel; None where it is over.

        From here on no chunk of it is recorded.
        """

    async def resume_import(self, import_id: ImportId, jobs: Mapping[int, NewJob]) -> bool:
        """Let a failed or cancelled import go on with these jobs for its chunks that are not done, and only these.

        The index -1 stands for the parent job of one that was never planned (it is QUEUED again), and the total for the
        finish job of one whose chunks are all done. False, and nothing else, unless it is FAILED or CANCELLED, was not
        swept, and the indexes are exactly those not done; nor while another import stands in its way: of the same file,
        or one of its scope that runs; nor ever again where it was planned and another of its scope has started since:
        that one wipes what the chunks of this one have loaded, and the rest of them would mix two files. What it said
        before, `error` and `finished_at`, is gone.
        """

    async def close_imports(self, limit: int) -> list[ImportRecord]:
        """Fail the imports that wait for a job (parent, chunk or finish) which is over or removed; those closed now.

        A job that waits or runs again is no reason. The error is JSON: code (`job_failed` or `job_cancelled`), message,
        jobId, and chunk (null for the parent and the finish job).
        """

    async def sweepable_imports(self, days: float, limit: int) -> list[ImportRecord]:
        """Imports whose files may go: that succeeded, or ended otherwise or were dry runs longer ago; not those swept
        already."""

    async def sweep_import(self, import_id: ImportId, *, errors_kept: int | None = None) -> bool:
        """Note that the files of an import are about to go: it cannot be resumed any more. False if it is not over.

        Asked again, it is True again, and the first time counts. Where it is said how many rows with errors are kept,
        those beyond the first so many are forgotten with it; they stay counted.
        """

    async def prune_imports(self, days: float, limit: int) -> int:
        """Remove up to `limit` imports that were swept and ended longer ago, oldest first, and count them.

        Their chunks and errors go with them; their jobs are not touched. One that keeps an older one of its scope from
        being resumed stays as long as that one is not swept.
        """
