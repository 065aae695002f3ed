"""The jobs of an import: a parent job that plans, chunk jobs that load, a finish job.

{"kind": "parent", "importJobId": …}
{"kind": "chunk", "importJobId": …, "chunkIndex": …, "chunkCount": …, "strategy": …, "payload": {…}}
{"kind": "finish", "importJobId": …}
"""

from __future__ import annotations

from typing import Any

from rowlock.imports.importer import IMPORT_JOB, ImportType
from rowlock.jobs.new_jobs import JobBuilder, Options
from rowlock.storage.imports import ImportId
from rowlock.storage.records import NewJob


class ImportJobs:
    """Builds the jobs of imports."""

    def __init__(self, builder: JobBuilder, queue: str) -> None:
        self._builder = builder
        self._queue = queue

    def parent(self, declared: ImportType, import_id: ImportId, company_id: str | None) -> NewJob:
        """Return the job that plans an import; the first one gets the import's id."""
        return self._job(declared, company_id, {"kind": "parent", "importJobId": import_id})

    def chunk(
        self, declared: ImportType, import_id: ImportId, company_id: str | None, index: int, count: int, folder: str
    ) -> NewJob:
        return self._job(
            declared,
            company_id,
            {
                "kind": "chunk",
                "importJobId": import_id,
                "chunkIndex": index,
                "chunkCount": count,
                "strategy": declared.strategy,
                "payload": {"path": chunk_path(folder, index)},
            },
        )

    def finish(self, declared: ImportType, import_id: ImportId, company_id: str | None) -> NewJob:
        return self._job(declared, company_id, {"kind": "finish", "importJobId": import_id})

    def _job(self, declared: ImportType, company_id: str | None, payload: dict[str, Any]) -> NewJob:
        queue = declared.queue or self._queue
        return self._builder.new(IMPORT_JOB, payload, Options(queue=queue, company_id=company_id))


IMPORTS_FOLDER = "imports"


def upload_folder(import_id: ImportId) -> str:
    """Return the folder of an import's files in the import store."""
    return f"{IMPORTS_FOLDER}/{import_id}"


def chunk_path(folder: str, index: int) -> str:
    return f"{folder}/{index}.arrow"
