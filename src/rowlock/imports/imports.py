"""Imports of an application: their declaration, their jobs, their chores, and what people may ask of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from rowlock.errors import (
    ImportFault,
    ImportIsOver,
    ImportNotFound,
    ImportNotResumable,
    JobError,
    Outcome,
    Permanent,
    SettingsError,
    StoreError,
)
from rowlock.imports.importer import Importer, ImportType, declared
from rowlock.imports.jobs import ImportJobs
from rowlock.imports.sandbox import Sandbox
from rowlock.imports.workshop import Workshop
from rowlock.jobs.engine import Engine
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.jobs.policy import QueueProfile
from rowlock.observe import logs
from rowlock.settings import Settings
from rowlock.storage.blobs import Blobs
from rowlock.storage.imports import ChunkStatus, ImportId, ImportRecord
from rowlock.storage.records import NewJob

_CLOSE_SECONDS = 1.0
_SWEEP_SECONDS = 60.0
_FORGOTTEN_SECONDS = 3_600.0
_BATCH = 100


class Imports:
    """The import types of an application, by name, and the work on them."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self.types: dict[str, ImportType] = {}
        self._engine = engine
        self._shops: WeakKeyDictionary[asyncio.AbstractEventLoop, Workshop] = WeakKeyDictionary()

    def declaring(self, name: str, options: Mapping[str, Any]) -> Callable[[type[Importer]], type[Importer]]:
        """Add an import type, at once where the options are all of it; the decorator gives it hooks of its own."""
        if name in self.types:
            raise SettingsError(f"importer {name!r} is declared twice; names must be different")
        if {"row", "into"} <= set(options):
            self.types[name] = declared(name, Importer(), options)

        def decorate(importer: type[Importer]) -> type[Importer]:
            self.types[name] = declared(name, importer(), options)
            return importer

        return decorate

    def profiles(self, settings: Settings) -> dict[str, QueueProfile]:
        """How workers treat the queues that imports are on, unless they are declared otherwise."""
        names = {declared.queue or settings.import_queue for declared in self.types.values()}
        return {name: QueueProfile(name, settings.import_concurrency, buffer_max=0) for name in names}

    @property
    def shop(self) -> Workshop:
        """What the jobs share, for the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._shops.get(loop)
        if found is None:
            engine = self._engine()
            jobs = ImportJobs(engine.enqueuer, engine.settings.import_queue)
            found = Workshop(engine, self.types, Blobs(engine.settings.import_store), jobs, Sandbox(), logs.get())
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
        """Do one job of an import; one that does not say its kind is a parent."""
        from rowlock.imports.chunk import load_chunk
        from rowlock.imports.finish import finish_import
        from rowlock.imports.parent import plan_import

        record = await self.shop.engine.store.get_import(importJobId)
        if record is None:
            raise Permanent(f"no import has the id {importJobId}; it may have been removed by retention")
        try:
            match kind:
                case "parent":
                    return await plan_import(self.shop, job, record)
                case "chunk" if chunkIndex is not None:
                    return await load_chunk(self.shop, job, record, chunkIndex)
                case "finish":
                    return await finish_import(self.shop, job, record)
        except ImportFault as fault:
            raise Permanent(str(fault)) from fault
        except (Outcome, JobError):
            raise
        except Exception as error:
            await self._note(job, record, error)
            raise
        raise Permanent(f"a job of an import is a parent, a chunk with its chunkIndex, or finish; not {kind!r}")

    async def _note(self, job: Job, record: ImportRecord, error: Exception) -> None:
        """Tell those who watch the import that this attempt went wrong; the queue decides whether there is another."""
        engine = self.shop.engine
        with suppress(StoreError):
            reason = engine.redact.text(f"{type(error).__name__}: {error}")
            told = f"an attempt failed and is tried again: {reason}"[:500]
            await engine.store.note_import(record.id, 0, told, job_id=job.id)

    async def warm(self) -> None:
        """Load what the first import would wait for."""
        await asyncio.to_thread(_preload)
        await self.shop.sandbox.warm()

    async def let_go(self) -> None:
        """End what this event loop has begun."""
        shop = self._shops.pop(asyncio.get_running_loop(), None)
        if shop is not None:
            await shop.sandbox.close()

    # -- people ------------------------------------------------------------------------------------

    async def get(self, import_id: ImportId) -> ImportRecord:
        record = await self.shop.engine.store.get_import(import_id)
        if record is None:
            raise ImportNotFound(f"no import has the id {import_id}")
        return record

    async def cancel(self, import_id: ImportId) -> None:
        """Stop an import: no chunk of it is recorded from here on; chunks that are done stay."""
        store = self.shop.engine.store
        record = await self.get(import_id)
        jobs = await store.cancel_import(import_id)
        if jobs is None:
            raise ImportIsOver(f"import {import_id} is {record.status} already")
        for job_id in jobs:
            await store.cancel(job_id)

    async def resume(self, import_id: ImportId) -> None:
        """Let a failed or cancelled import go on where it stopped: chunks that are done are not done again."""
        record = await self.get(import_id)
        declared = self.types.get(record.type)
        if declared is None:
            raise ImportNotResumable(f"import {import_id}: no importer {record.type!r} is declared any more")
        if not record.status.resumable:
            raise ImportNotResumable(f"import {import_id} is {record.status}; only failed and cancelled ones can go on")
        if record.swept_at is not None:
            raise ImportNotResumable(f"the files of import {import_id} are gone; upload it again")
        if not await self.shop.engine.store.resume_import(import_id, await self._missing(record, declared)):
            raise ImportNotResumable(
                f"import {import_id} cannot go on: the same file, or one that excludes it, is being imported"
            )

    async def _missing(self, record: ImportRecord, declared: ImportType) -> dict[int, NewJob]:
        """Jobs for what is not done: the plan, chunks, or the finish."""
        jobs = self.shop.jobs
        if record.total_chunks is None:
            return {-1: jobs.parent(declared, record.id, record.company_id)}
        folder, count = loads(record.meta)["folder"], record.total_chunks
        chunks = await self.shop.engine.store.chunks(record.id)
        waiting = [c.index for c in chunks if c.status is not ChunkStatus.DONE and 0 <= c.index < count]
        if not waiting:
            return {count: jobs.finish(declared, record.id, record.company_id)}
        return {i: jobs.chunk(declared, record.id, record.company_id, i, count, folder) for i in waiting}

    # -- chores ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Fail the imports one of whose jobs has died."""
        store = self.shop.engine.store
        for record in await store.close_imports(_BATCH):
            self.shop.log.error("import.failed", id=record.id, type=record.type, reason=record.message)

    async def sweep(self) -> None:
        """Remove the files of imports that are over."""
        from rowlock.imports.sweep import sweep_ended

        await sweep_ended(self.shop)

    async def sweep_forgotten(self) -> None:
        """Remove files that belong to no import."""
        from rowlock.imports.sweep import sweep_forgotten

        if count := await sweep_forgotten(self.shop):
            self.shop.log.info("import.swept", files=count)

    @property
    def chores(self) -> list[tuple[float, Callable[[], Any]]]:
        """What the keeper does for imports, and how often."""
        if not self.types:
            return []
        return [
            (_CLOSE_SECONDS, self.close),
            (_SWEEP_SECONDS, self.sweep),
            (_FORGOTTEN_SECONDS, self.sweep_forgotten),
        ]


def _preload() -> None:
    import rowlock.imports.chunk
    import rowlock.imports.split  # noqa: F401
