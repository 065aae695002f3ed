"""Import files with Rowlock as its users do: receive a file, let workers import it, and compare the report and the
table with the expected result."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clients import ClientError
from benchmarks.imports.app import UPSERT, WARM, application
from benchmarks.imports.data import File, Truth
from benchmarks.imports.worker_tree import WorkerTree
from benchmarks.usage import cpu
from rowlock import Rowlock
from rowlock.imports.intake import upload
from rowlock.imports.intake.intake import About, Intake
from rowlock.settings import load
from rowlock.storage.imports import Counts, ImportRecord, ImportStatus

_POLL_SHARE, _POLL_SECONDS_MIN, _POLL_SECONDS_MAX = 0.005, 0.002, 0.05  # of the time that has passed
REST_SECONDS = 4.5  # until a worker that has read a file has started the reader for the next one, and is idle
_ERRORS_KEPT = 10_000


@dataclass(slots=True)
class Driver:
    app: Rowlock
    server: int | None  # the process of PostgreSQL
    import_seconds_max: float
    running: WorkerTree = field(init=False)

    async def run(self, path: Path, type_name: str, truth: Truth, *, unchanged: bool = False) -> dict[str, Any]:
        """Import a file; measured from the recorded upload until the import is known to have succeeded."""
        intake = Intake(self.app)
        added = await intake.receive_file(path, About(type=type_name, force=True))
        used, began = cpu([self.running.pid], self.server), time.monotonic()
        record = await self._ended(added.record.id)
        ended = time.monotonic()
        seconds = ended - began
        spent = cpu([self.running.pid], self.server) - used
        await self._check(record, truth, unchanged)
        return {
            "rate": truth.rows / seconds,
            "seconds": seconds,
            "client_cpu_us": spent.client / truth.rows / 1_000,
            "server_cpu_us": spent.server / truth.rows / 1_000,
            "other_cores": max(0.0, spent.others / seconds / 1e9),
            "chunks": record.total_chunks,
            "ended": ended,
        }

    async def quick(self, file: File, type_name: str = UPSERT) -> float:
        """Import a small file; return the seconds from the end of the upload, before it is recorded, to success."""
        intake, about = Intake(self.app), About(type=type_name, force=True)
        async with intake.open(file.path.name) as incoming:
            received = await upload.receive(upload.read_file(file.path), incoming)
            began = time.monotonic()
            added = await intake.add(received, about)
            record = await self._ended(added.record.id)
        seconds = time.monotonic() - began
        await self._check(record, file.truth, unchanged=False)
        return seconds

    async def get_warm(self, file: File) -> None:
        """Make the workers load every library and open every connection, then wait until they are idle."""
        with contextlib.suppress(_Wrong):  # the second time the table has its rows already
            await self.quick(file, WARM)
        await asyncio.sleep(REST_SECONDS)

    async def _ended(self, import_id: str) -> ImportRecord:
        """Return the import when it has ended; polls rarely enough not to slow it down."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < self.import_seconds_max:
            record = await self.app.store.get_import(import_id)
            if record is not None and record.status.final:
                return record
            self.running.check()
            await asyncio.sleep(min(_POLL_SECONDS_MAX, max(_POLL_SECONDS_MIN, passed * _POLL_SHARE)))
        raise ClientError(f"the import did not end in {self.import_seconds_max:g} s: {record and record.message}")

    async def _check(self, record: ImportRecord, truth: Truth, unchanged: bool) -> None:
        if record.status is not ImportStatus.SUCCEEDED:
            raise ClientError(f"the import is {record.status}: {record.message} {record.error}")
        inserted, same = (0, truth.loaded) if unchanged else (truth.loaded, 0)
        wanted = Counts(truth.rows, inserted, 0, same, truth.repeated, truth.bad_rows)
        if record.counts != wanted:
            raise _Wrong(f"counted {record.counts}, and there are {wanted}")
        if record.error_count != truth.bad_cells:
            raise _Wrong(f"reported {record.error_count} bad cells of {truth.bad_cells}")
        if truth.bad_cells <= _ERRORS_KEPT:
            told = await self._told(record.id)
            if told != set(truth.bad):
                wrong = sorted(told ^ set(truth.bad))[:5]
                raise _Wrong(f"the bad cells are not those that were reported: {wrong}")

    async def _told(self, import_id: str) -> set[tuple[int, str]]:
        """Return the bad cells that the import reports, by row and column."""
        told: set[tuple[int, str]] = set()
        after: int | None = 0
        while after is not None:
            page = await self.app.store.import_errors(import_id, after_row=after, limit=1_000)
            told |= {(error.row, str(error.column)) for row in page.rows for error in row.errors}
            after = page.next_row
        return told


class _Wrong(ClientError):
    """The import's report differs from the content of the file."""


@contextlib.asynccontextmanager
async def driving(url: str, store: Path, server: int | None, import_seconds_max: float) -> AsyncIterator[Driver]:
    """Open the application; start its workers when the store has its schema."""
    app = application(load(database_url=url, import_store=str(store), import_csv_bytes_max=FILE_BYTES_MAX))
    try:
        yield Driver(app, server, import_seconds_max)
    finally:
        await app.close()


FILE_BYTES_MAX = 4 << 30  # ten million rows are more than the default allows
