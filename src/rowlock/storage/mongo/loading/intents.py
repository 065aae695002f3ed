"""Write intents of a chunk's attempts, on a server without transactions.

They are recorded before the rows are written. If an attempt dies in between, the next one finds some of the rows
written: it counts them as its predecessor would have, and inserts none of them a second time.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowlock.ids import uuid7
from rowlock.storage.imports import ImportId
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.loading.replace import RowIds

INTENTS = "rowlock_import_intents"


class Intents:
    """The row numbers of one load of a chunk; `number` counts the loads of the chunk's hook."""

    def __init__(self, import_id: ImportId, chunk: int, number: int) -> None:
        self.inserts = set[int]()
        self.updates = set[int]()
        self._of_chunk = _of(import_id, chunk)
        self._number = number
        self.ids = RowIds(import_id, number)

    async def read(self, scope: Scope) -> None:
        """Read what earlier attempts have recorded."""
        async for found in scope[INTENTS].find({"_id": self._of_chunk, "load": self._number}):
            self.inserts.update(found["inserts"])
            self.updates.update(found["updates"])

    async def record(self, scope: Scope, inserts: Iterable[int], updates: Iterable[int]) -> None:
        """Record the rows that will be written, unless they are recorded already."""
        new_inserts, new_updates = set(inserts) - self.inserts, set(updates) - self.updates
        if new_inserts or new_updates:
            rows = {"inserts": sorted(new_inserts), "updates": sorted(new_updates)}
            await scope[INTENTS].insert_one({"_id": f"{self._of_chunk['$gte']}{uuid7()}", "load": self._number, **rows})
            self.inserts |= new_inserts
            self.updates |= new_updates


async def forget(scope: Scope, import_id: ImportId, chunk: int | None = None) -> None:
    """Remove the intents of a chunk whose end is recorded, or of an import that cannot resume."""
    await scope[INTENTS].delete_many({"_id": _of(import_id, chunk)})


def _of(import_id: ImportId, chunk: int | None) -> Document:
    """Return the range of ids of a chunk's documents, or of all chunks of an import."""
    first = f"{import_id}/" if chunk is None else f"{import_id}/{chunk}/"
    return {"$gte": first, "$lt": first[:-1] + "0"}  # "0" follows "/"
