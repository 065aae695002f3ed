"""The schema: collections and indexes, which migrations ran, and running the rest.

Each module says which indexes its verbs need (`INDEXES`); a migration is a set of them. Creating an index that is there
already does nothing, so that two who migrate at once do no harm; the record of a migration is added once.
"""

from __future__ import annotations

import orjson
from pymongo import IndexModel
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure

from rowlock.errors import SchemaMissing
from rowlock.storage.migrate import Migration, pending, require_current
from rowlock.storage.mongo import (
    access,
    alerts,
    calling,
    changes,
    claim,
    connection,
    enqueue,
    failures,
    importing,
    limits,
    listing,
    locks,
    notes,
    operate,
    progress,
    retain,
    schedules,
    tally,
    workers,
)
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.records import SchemaState

_THERE_ALREADY = 48

_STEPS: tuple[tuple[str, tuple[Index, ...]], ...] = (
    (
        "jobs",
        (
            *claim.INDEXES,
            *enqueue.INDEXES,
            *limits.INDEXES,
            *workers.INDEXES,
            *progress.INDEXES,
            *notes.INDEXES,
            *tally.INDEXES,
            *operate.INDEXES,
            *listing.INDEXES,
            *retain.INDEXES,
            *changes.INDEXES,
            *failures.INDEXES,
        ),
    ),
    ("reliability", (*locks.INDEXES, *schedules.INDEXES, *alerts.INDEXES)),
    ("access", (*access.INDEXES,)),
    ("imports", (*importing.INDEXES,)),
    ("calls", (*calling.INDEXES,)),
)


def _migration(number: int, name: str, indexes: tuple[Index, ...]) -> Migration:
    said = [index.as_document() for index in indexes]
    return Migration(number, name, orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode())


MIGRATIONS = tuple(_migration(number, *step) for number, step in enumerate(_STEPS, 1))
INDEXES = tuple(index for _, indexes in _STEPS for index in indexes)


async def applied(scope: Scope) -> dict[int, str]:
    """The checksums of the migrations that ran, by number; none in an empty database."""
    return {found["_id"]: found["checksum"] async for found in scope[connection.MIGRATIONS].find()}


async def migrate(scope: Scope) -> list[str]:
    """Run what is missing, and name what this caller has run; indexes that were dropped since are made again."""
    missing = pending(await applied(scope), MIGRATIONS)
    await _create(scope, INDEXES)
    ran = []
    for migration in missing:
        record = {"_id": migration.number, "name": migration.name, "checksum": migration.checksum}
        try:
            await scope[connection.MIGRATIONS].insert_one({**record, "appliedAt": await scope.now()})
        except DuplicateKeyError:
            continue  # another did it at the same time
        ran.append(migration.label)
    return ran


async def state(scope: Scope) -> SchemaState:
    return SchemaState(current=max(await applied(scope), default=0), wanted=len(MIGRATIONS))


async def check(scope: Scope) -> None:
    """Raise unless the migrations ran, and the indexes that they made are still there."""
    require_current(await applied(scope), MIGRATIONS)
    if lacking := await lacking_indexes(scope):
        raise SchemaMissing(f"indexes are missing or differ ({', '.join(lacking)}): run `rowlock migrate`")


async def lacking_indexes(scope: Scope) -> list[str]:
    """The indexes, as `collection.name`, that are not there as this release made them."""
    found: dict[str, dict[str, Document]] = {}
    for collection in {index.collection for index in INDEXES}:
        found[collection] = {one["name"]: dict(one) async for one in await scope[collection].list_indexes()}
    return [
        f"{index.collection}.{index.name}"
        for index in INDEXES
        if not index.is_like(found[index.collection].get(index.name))
    ]


async def _create(scope: Scope, indexes: tuple[Index, ...]) -> None:
    models: dict[str, list[IndexModel]] = {}
    for index in indexes:
        models.setdefault(index.collection, [])
        if index.keys:
            models[index.collection].append(index.model())
    there = set(await scope.db.list_collection_names())
    for collection, wanted in models.items():
        if collection not in there:
            try:
                await scope.db.create_collection(collection)
            except CollectionInvalid:
                pass  # another made it at the same time
            except OperationFailure as error:
                if error.code != _THERE_ALREADY:
                    raise
        if wanted:
            await scope[collection].create_indexes(wanted)
