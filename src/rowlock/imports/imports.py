"""The imports of an application: declarations, jobs, commands of operators and maintenance chores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rowlock.errors import (
    CompanyMismatch,
    ImportFault,
    ImportIsOver,
    ImportNotFound,
    ImportNotResumable,
    JobError,
    Outcome,
    Permanent,
    SettingsError,
    StatementRefused,
    StoreError,
    TransactionTooLarge,
    ValueRefused,
)
from rowlock.imports.importer import IMPORT_JOB, Importer, ImportType, declared
from rowlock.imports.load.conflicts import check_conflict
from rowlock.jobs.engine import Engine
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.jobs.policy import QueueProfile
from rowlock.observe import logs
from rowlock.settings import Settings
from rowlock.storage.imports import ATTEMPT_FAILED, ChunkStatus, ImportId, ImportRecord, ImportStatus
from rowlock.storage.records import JobFilter, JobId, NewJob, Status

if TYPE_CHECKING:
    from rowlock.imports.import_context import ImportContext

_CLOSE_SECONDS = 1.0
_CLEANUP_SECONDS = 60.0
_FORGOTTEN_SECONDS = 3_600.0
_BATCH = 100


class Imports:
    """The import types of an application by name, and the operations on their imports."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self.types: dict[str, ImportType] = {}
        self._engine = engine
        self._shops: WeakKeyDictionary[asyncio.AbstractEventLoop, ImportContext] = WeakKeyDictionary()

    def declaring(self, name: str, options: Mapping[str, Any]) -> Callable[[type[Importer]], type[Importer]]:
        """Declare an import type, at once if the options suffice; returns a decorator for a class with hooks."""
        if name in self.types:
            raise SettingsError(f"importer {name!r} is declared twice; names must be different")
        if {"row", "into"} <= set(options):
            self.types[name] = declared(name, Importer(), options)

        def decorate(importer: type[Importer]) -> type[Importer]:
            self.types[name] = declared(name, importer(), options)
            return importer

        return decorate

    def profiles(self, settings: Settings) -> dict[str, QueueProfile]:
        """Return the default profiles of the queues of imports: `import_concurrency` and no prefetch."""
        names = {declared.queue or settings.import_queue for declared in self.types.values()}
        return {name: QueueProfile(name, settings.import_concurrency, buffer_max=0) for name in names}

    @property
    def context(self) -> ImportContext:
        """The import context of the running event loop, created on first use."""
        loop = asyncio.get_running_loop()
        found = self._shops.get(loop)
        if found is None:
            from rowlock.imports.import_context import ImportContext
            from rowlock.imports.jobs import ImportJobs
            from rowlock.imports.read.sandbox import Sandbox
            from rowlock.storage.blobs import Blobs

            engine = self._engine()
            jobs = ImportJobs(engine.builder, engine.settings.import_queue)
            found = ImportContext(engine, self.types, Blobs(engine.settings.import_store), jobs, Sandbox(), logs.get())
            self._shops[loop] = found
        return found

    # -- jobs --------------------------------------------------------------------------------------

    async def work(
        self,
        job: Job,
        importJobId: str,
        kind: str = "parent",
        chunkIndex: int | None = None,
        chunkCount: int | None = None,
        strategy: str | None = None,
        payload: dict[str, Any] | None = None,
    ) -> Any:
        """Run one job of an import: its parent job (the default), a chunk or the finish job."""
        from rowlock.imports.load.chunk import load_chunk
        from rowlock.imports.load.finish import finish_import
        from rowlock.imports.load.parent import plan_import

        record = await self.context.engine.store.get_import(importJobId)
        if record is None:
            raise Permanent(f"no import has the id {importJobId}; it may have been removed by retention")
        if job.company_id not in (None, record.company_id):
            raise Permanent(f"import {importJobId} does not belong to the job's company {job.company_id!r}")
        try:
            match kind:
                case "parent":
                    return await plan_import(self.context, job, record)
                case "chunk" if chunkIndex is not None:
                    return await load_chunk(self.context, job, record, chunkIndex)
                case "finish":
                    return await finish_import(self.context, job, record)
        except ImportFault as fault:
            raise Permanent(str(fault)) from fault
        except (ValueRefused, StatementRefused, TransactionTooLarge) as refused:
            advice = "correct this, then resume the import"
            raise Permanent(f"{type(refused).__name__}: {refused}; {advice}") from refused
        except (Outcome, JobError):
            raise
        except Exception as error:
            check_conflict(error, job._claimed.releases)
            await self._note(job, record, error)
            raise
        raise Permanent(f"the kind of an import's job must be parent, chunk (with chunkIndex) or finish, not {kind!r}")

    async def _note(self, job: Job, record: ImportRecord, error: Exception) -> None:
        """Record the failed attempt as the import's message; the queue decides whether to retry."""
        engine = self.context.engine
        with suppress(StoreError):
            reason = engine.redact.text(f"{type(error).__name__}: {error}")
            message = f"{ATTEMPT_FAILED}: {reason}"[:500]
            parent = job.payload.get("kind", "parent") == "parent"  # the store fences notes by the parent's id only
            await engine.store.note_import(record.id, 0, message, job_id=job.id if parent else None)

    async def warm(self) -> None:
        """Load modules and start a sandbox process, so that the first import does not wait for them."""
        await asyncio.to_thread(_preload)
        await self.context.sandbox.warm()

    async def let_go(self) -> None:
        """Close the import context of this event loop."""
        context = self._shops.pop(asyncio.get_running_loop(), None)
        if context is not None:
            await context.sandbox.close()

    # -- commands ----------------------------------------------------------------------------------

    async def get(self, import_id: ImportId) -> ImportRecord:
        record = await self.context.engine.store.get_import(import_id)
        if record is None:
            raise ImportNotFound(f"no import has the id {import_id}")
        return record

    async def cancel(self, import_id: ImportId) -> None:
        """Cancel an import: no further chunk is recorded, and finished chunks stay. Raises ImportIsOver if it ended."""
        store = self.context.engine.store
        jobs = await store.cancel_import(import_id)
        if jobs is None:
            raise ImportIsOver(f"import {import_id} is {(await self.get(import_id)).status} already")
        for job_id in jobs:
            await store.cancel(job_id)

    async def resume(self, import_id: ImportId) -> None:
        """Continue a failed or cancelled import without repeating finished chunks.

        Raises ImportNotResumable if it cannot continue.
        """
        record = await self.get(import_id)
        declared = self.types.get(record.type)
        if declared is None:
            raise ImportNotResumable(f"import {import_id}: importer {record.type!r} is no longer declared")
        if not record.status.resumable:
            raise ImportNotResumable(
                f"import {import_id} is {record.status}; only failed and cancelled imports can be resumed"
            )
        if record.cleaned_at is not None:
            raise ImportNotResumable(f"the files of import {import_id} were deleted; upload it again")
        if not await self.context.engine.store.resume_import(import_id, await self._missing(record, declared)):
            raise ImportNotResumable(
                f"import {import_id} cannot be resumed: the same file, or an import that excludes it, is running"
            )

    async def resume_of(self, retried: Sequence[JobId], *, scoped: bool = False) -> None:
        """Resume the failed imports of these jobs, which an operator is about to retry.

        Call it before the retry: if the store fails in between, the same retry can be repeated. A job that was retried
        before its import was resumed would refuse that.

        An import that cannot continue stays failed, and its job ends as skipped. The same applies to importers without
        a company column if the operator is `scoped` to a company.
        """
        if not self.types or not retried:
            return
        jobs = (await self.context.engine.store.page(JobFilter(type=IMPORT_JOB, ids=retried), len(retried))).jobs
        over = [job for job in jobs if job.status in (Status.FAILED, Status.CANCELLED)]
        ids = {found for job in over if (found := loads(job.payload).get("importJobId"))}
        for import_id in sorted(map(str, ids)):
            with suppress(ImportNotFound, ImportNotResumable, CompanyMismatch):
                record = await self.get(import_id)
                if scoped and record.type in self.types:
                    self.types[record.type].check_scoped()
                if record.status is ImportStatus.FAILED:
                    await self.resume(import_id)

    async def _missing(self, record: ImportRecord, declared: ImportType) -> dict[int, NewJob]:
        """Return jobs for the unfinished work by chunk index: the plan (-1), chunks, or the finish (chunk count)."""
        jobs = self.context.jobs
        if record.total_chunks is None:
            return {-1: jobs.parent(declared, record.id, record.company_id)}
        folder, count = loads(record.meta)["folder"], record.total_chunks
        chunks = await self.context.engine.store.chunks(record.id)
        waiting = [c.index for c in chunks if c.status is not ChunkStatus.DONE and 0 <= c.index < count]
        if not waiting:
            return {count: jobs.finish(declared, record.id, record.company_id)}
        return {i: jobs.chunk(declared, record.id, record.company_id, i, count, folder) for i in waiting}

    # -- chores ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Fail the imports that wait for a job which has ended or was removed."""
        store = self.context.engine.store
        for record in await store.close_imports(_BATCH):
            self.context.log.error("import.failed", id=record.id, type=record.type, reason=record.message)

    async def clean(self) -> None:
        """Delete the files of ended imports."""
        from rowlock.imports.cleanup import clean_ended

        await clean_ended(self.context)

    async def clean_forgotten(self) -> None:
        """Delete interrupted uploads and files that no import needs."""
        from rowlock.imports.cleanup import clean_forgotten

        if count := await clean_forgotten(self.context):
            self.context.log.info("import.cleaned", files=count)

    @property
    def chores(self) -> list[tuple[float, Callable[[], Any]]]:
        """The maintenance chores of imports, each with its interval in seconds."""
        if not self.types:
            return []
        return [
            (_CLOSE_SECONDS, self.close),
            (_CLEANUP_SECONDS, self.clean),
            (_FORGOTTEN_SECONDS, self.clean_forgotten),
        ]


def _preload() -> None:
    import rowlock.imports.load.chunk
    import rowlock.imports.read.partition  # noqa: F401
