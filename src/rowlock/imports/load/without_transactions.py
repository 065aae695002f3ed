"""Imports on a store without transactions: what is refused, and what earlier attempts have recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rowlock.errors import FileRefused, NoTransactions, Snooze
from rowlock.imports.importer import ImportType, Policy
from rowlock.jobs.job import Job
from rowlock.storage.contract import Store
from rowlock.storage.imports import ChunkEnd, ChunkStatus, ImportRecord

NEEDS_TRANSACTIONS = "needs_transactions"
NOTICE = (
    "Loaded without transactions: rows are visible while the import runs, and an import that fails or is cancelled may "
    "leave rows of unfinished chunks in the table, which its counts do not include."
)

_PLANNED_SECONDS, _PLANNED_SECONDS_MAX = 0.1, 5.0


async def check_possible(store: Store, declared: ImportType) -> None:
    """Raise FileRefused if the importer loads all rows or none and the store has no transactions."""
    if declared.policy is Policy.ALL_OR_NOTHING and (reason := await store.lacks_transactions()):
        raise FileRefused(
            f"importer {declared.name!r} loads all rows or none, and {reason}; "
            "or declare the importer with policy='partial'",
            code=NEEDS_TRANSACTIONS,
        )


@contextmanager
def refusing_writes(declared: ImportType) -> Iterator[None]:
    """Raise FileRefused if the block makes writes that would have to be rolled back."""
    try:
        yield
    except NoTransactions as error:
        raise FileRefused(
            f"importer {declared.name!r}: prepare() writes (run.execute), and a dry run or parse() runs it once and "
            f"rolls it back: {error}",
            code=NEEDS_TRANSACTIONS,
        ) from error


class NotOurs(Exception):
    """Another job loads the chunk."""


async def recorded(store: Store, job: Job, record: ImportRecord, index: int) -> ChunkEnd | None:
    """Return the state of the import if an earlier attempt recorded this chunk, None if the chunk must be loaded.

    Raises NotOurs if the chunk belongs to another job, and Snooze if its plan is not recorded yet.
    """
    if record.total_chunks is None:
        raise Snooze(min(_PLANNED_SECONDS * job.lease, _PLANNED_SECONDS_MAX), "the import's plan is not recorded yet")
    chunk = next((each for each in await store.chunks(record.id) if each.index == index), None)
    if chunk is None or chunk.job_id != job.id:
        raise NotOurs
    if chunk.status is not ChunkStatus.DONE:
        return None
    return ChunkEnd(record.status, record.completed_chunks, record.total_chunks, record.error_count)
