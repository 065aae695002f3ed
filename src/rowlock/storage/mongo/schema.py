"""The schema: collections and indexes, the record of applied migrations, and running the pending ones.

Each module declares the indexes that its verbs need (`INDEXES`); a migration is a set of them. Creating an existing
index does nothing, so concurrent migrations are safe; each migration is recorded once.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson
from pymongo import IndexModel
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure

from rowlock.errors import SchemaMissing
from rowlock.storage import migrate as rules
from rowlock.storage.access import REQUESTS, TOKENS
from rowlock.storage.migrate import Applied, Migration
from rowlock.storage.mongo import calling, connection
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.imports import importing
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs import (
    alerts,
    attempts,
    changes,
    claim,
    counter_deltas,
    counters,
    enqueue,
    failures,
    limits,
    listing,
    newest,
    progress,
    retention,
    workers,
)
from rowlock.storage.mongo.records import indexes_of
from rowlock.storage.records import Finding, SchemaState, Severity
from rowlock.storage.reliability import ALERTS, LOCKS, RUNS, SCHEDULES

_THERE_ALREADY = 48


class Step(NamedTuple):
    """One migration: the indexes that it creates."""

    name: str
    indexes: tuple[Index, ...]
    oldest: int | None = None  # oldest compatible schema (see `storage.migrate`); None: its own number


STEPS = (
    Step(
        "schema",
        (
            *claim.INDEXES,
            *enqueue.INDEXES,
            *newest.INDEXES,
            *attempts.INDEXES,
            *progress.INDEXES,
            *workers.INDEXES,
            *listing.INDEXES,
            *changes.INDEXES,
            *retention.INDEXES,
            *limits.INDEXES,
            *counter_deltas.INDEXES,
            *counters.INDEXES,
            *failures.INDEXES,
            *alerts.INDEXES,
            *indexes_of(LOCKS),
            *indexes_of(SCHEDULES),
            *indexes_of(RUNS),
            *indexes_of(ALERTS),
            *indexes_of(TOKENS),
            *indexes_of(REQUESTS),
            *importing.INDEXES,
            *calling.INDEXES,
        ),
    ),
)


def _migration(number: int, step: Step) -> Migration:
    said = [index.as_document() for index in step.indexes]
    text = orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode()
    return Migration(number, step.name, text, step.oldest or number)


MIGRATIONS = tuple(_migration(number, step) for number, step in enumerate(STEPS, 1))
INDEXES = tuple(index for step in STEPS for index in step.indexes)


async def applied(scope: Scope) -> dict[int, Applied]:
    """Return the applied migrations by number; empty for a database without a schema."""
    found = scope[connection.MIGRATIONS].find()
    return {one["_id"]: Applied(one["checksum"], one["oldest"]) async for one in found}


async def migrate(scope: Scope) -> list[str]:
    """Run pending migrations, recreate dropped indexes, and return the labels of the migrations that this call ran."""
    found = await applied(scope)
    missing = rules.pending(found, MIGRATIONS)
    if rules.state(found, MIGRATIONS).newer:
        return []  # a newer release manages the indexes
    await _create(scope, INDEXES)
    ran = []
    for migration in missing:
        record = {"_id": migration.number, "name": migration.name, "checksum": migration.checksum}
        record |= {"oldest": migration.oldest, "appliedAt": await scope.now()}
        try:
            await scope[connection.MIGRATIONS].insert_one(record)
        except DuplicateKeyError:
            continue  # another process recorded it at the same time
        ran.append(migration.label)
    return ran


async def state(scope: Scope) -> SchemaState:
    return rules.state(await applied(scope), MIGRATIONS)


async def check(scope: Scope) -> None:
    """Raise unless all migrations ran and their indexes still exist."""
    found = await applied(scope)
    rules.require_usable(found, MIGRATIONS)
    if rules.state(found, MIGRATIONS).newer:
        return
    if lacking := await lacking_indexes(scope):
        raise SchemaMissing(f"indexes are missing or differ ({', '.join(lacking)}): run `rowlock migrate`")


async def finding(scope: Scope) -> Finding:
    """Return the finding of `doctor` about the schema."""
    found = rules.finding(await applied(scope), MIGRATIONS)
    if found.severity is Severity.OK and (lacking := await lacking_indexes(scope)):
        said = f"indexes are missing or differ: {', '.join(lacking)}"
        return Finding("schema", Severity.ERROR, said, "run `rowlock migrate`")
    return found


async def lacking_indexes(scope: Scope) -> list[str]:
    """Return the indexes, as `collection.name`, that are missing or differ from the definitions of this release."""
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
                pass  # another process created it at the same time
            except OperationFailure as error:
                if error.code != _THERE_ALREADY:
                    raise
        if wanted:
            await scope[collection].create_indexes(wanted)
