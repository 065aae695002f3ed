"""Enqueue: the number of each job first, then the unique keys, the jobs and the note of them, in one transaction.

One job without a key needs none: it is its own note.

Written once for asynchronous and synchronous sessions: `_steps` yields what a pymongo call of either kind returns, and
is sent what came of it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import datetime
from typing import Any

from pymongo import ReplaceOne, ReturnDocument, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError
from pymongo.synchronous.client_session import ClientSession

from rowlock.clock import Clock
from rowlock.errors import DuplicateJob
from rowlock.garbage import no_garbage
from rowlock.storage.mongo.connection import (
    DURABLE,
    MIGRATIONS,
    SNAPSHOT,
    TRIES_AT_MOST,
    Document,
    Scope,
    database,
    is_replicated,
    require_migrated,
    worth_another_try,
)
from rowlock.storage.mongo.documents import DELAYED, JOBS, READY, job_document
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.moments import after, floor
from rowlock.storage.mongo.notes import NEW, NOTES, Tally
from rowlock.storage.mongo.words import own_words
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import NewJob, OnConflict, Receipt, UniqueKey

KEYS = "rowlock_keys"
COUNTERS = "rowlock_counters"

INDEXES = (
    Index(KEYS, "expired", (("expiresAt", 1),), expire_seconds=0),
    Index(KEYS, "of_job", (("jobId", 1),)),
    Index(COUNTERS),
)

Steps = Generator[Any, Any, list[Receipt]]

# What is numbered is durable only together with its job, which comes later in the same log: no need to wait for it.
_AT_ONCE = WriteConcern(w=1)


class Producing(Worked):
    """The verbs of producers."""

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        if not jobs:
            return []
        if connection is None:
            return await self._enqueue_alone(jobs)
        if isinstance(connection, AsyncClientSession):
            with own_words(self.url):
                return await _run(self._through(connection, jobs))
        return self.enqueue_blocking(jobs, connection)

    def enqueue_blocking(self, jobs: Sequence[NewJob], connection: Any) -> list[Receipt]:
        if not isinstance(connection, ClientSession):
            given = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise TypeError(
                f"enqueue(connection=...) takes a ClientSession or AsyncClientSession of pymongo; not {given}"
            )
        if not jobs:
            return []
        with own_words(self.url):
            return _run_blocking(self._through(connection, jobs))

    async def depth(self, queue: str, at_most: int) -> int:
        async def work(scope: Scope) -> int:
            found = 0
            for where in (
                {"state": READY, "limitKey": ""},
                {"state": READY, "limitKey": {"$gt": ""}},
                {"state": DELAYED},
            ):
                if found < at_most:  # each has an index of its own
                    found += await scope[JOBS].count_documents({"queue": queue, **where}, limit=at_most - found)
            return found

        return await self._plain(work)

    async def _enqueue_alone(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        if len(jobs) == 1 and jobs[0].unique is None:
            return await self._plain(lambda scope: add(scope, jobs))

        async def work(scope: Scope) -> list[Receipt]:
            try:
                return await add(scope, jobs)
            except Exception:
                if scope.session is None:
                    await _take_back(scope, jobs)
                raise

        return await self._atomic(work)

    def _through(self, session: Any, jobs: Sequence[NewJob]) -> Steps:
        """Enqueue through a session of the caller's, in its transaction or, where it has none, in one of ours."""
        db = database(session.client, self._database)
        if not self._migrated:
            require_migrated((yield db[MIGRATIONS].find_one({}, {"_id": 1})), self.url)
            self._migrated = True
        if session.in_transaction:
            return (yield from _steps(db, session, jobs, self.clock))
        if not is_replicated((yield session.client.admin.command("hello"))):
            raise TypeError("this server has no transactions: leave the connection out to enqueue there")
        return (yield from _in_own_transaction(db, session, jobs, self.clock))

    _database: str
    _migrated: bool = False


async def add(scope: Scope, jobs: Sequence[NewJob]) -> list[Receipt]:
    """Enqueue in this scope: raises DuplicateJob for the first that may not share its key, having changed nothing."""
    return await _run(_steps(scope.db, scope.session, jobs, scope.clock)) if jobs else []


async def _take_back(scope: Scope, jobs: Sequence[NewJob]) -> None:
    """Without transactions: remove what was recorded of a batch that could not be recorded whole."""
    ours = [job.id for job in jobs]
    await scope[JOBS].delete_many({"_id": {"$in": ours}, "state": {"$in": [READY, DELAYED]}, "lease": 0})
    await scope[KEYS].delete_many({"jobId": {"$in": ours}})


def _steps(db: Any, session: Any, jobs: Sequence[NewJob], clock: Clock) -> Steps:
    # Not in the transaction: all who enqueue at the same time would have to wait for each other's end.
    counted = (
        yield db[COUNTERS]
        .with_options(write_concern=_AT_ONCE)
        .find_one_and_update(
            {"_id": "seq"},
            {"$inc": {"last": len(jobs)}, "$currentDate": {"at": True}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
    )
    given = clock.now()
    now: datetime = counted["at"] if given is None else floor(given)
    existing: dict[int, str] = {}
    wanted = [job.unique.key for job in jobs if job.unique is not None]
    if wanted:
        held = yield db[KEYS].find({"_id": {"$in": wanted}}, session=session).to_list()
        existing, taken = _take_keys(jobs, {key["_id"]: key for key in held}, now)
        if taken:
            yield db[KEYS].bulk_write(taken, session=session)
    first = counted["last"] - len(jobs) + 1
    created = [job_document(job, first + place, now) for place, job in enumerate(jobs) if place not in existing]
    if len(created) == 1:
        yield db[JOBS].insert_one(created[0] | NEW, session=session)
    elif created:
        tally = Tally()
        for document in created:
            change = tally[document["queue"], document["type"]]
            change.alive += 1
            change.rings = True
        yield db[JOBS].insert_many(created, session=session)
        yield db[NOTES].insert_many(tally.notes(now), session=session)
    with no_garbage():
        return [Receipt(existing.get(place, job.id), place not in existing) for place, job in enumerate(jobs)]


def _take_keys(
    jobs: Sequence[NewJob], held: dict[str, Document], now: datetime
) -> tuple[dict[int, str], list[ReplaceOne[Document]]]:
    """By place, who holds the keys that are taken; and how to take the others."""
    existing: dict[int, str] = {}
    taken = []
    for place, job in enumerate(jobs):
        unique = job.unique
        if unique is None:
            continue
        key = held.get(unique.key)
        if key is not None and key["jobId"] != job.id and not ("expiresAt" in key and key["expiresAt"] <= now):
            if unique.on_conflict is OnConflict.REJECT:
                raise DuplicateJob(
                    f"job {key['jobId']} holds the unique key {unique.key!r}: wait for it, or enqueue with another key",
                    existing_job_id=key["jobId"],
                )
            existing[place] = key["jobId"]
            continue
        # Where another has taken it meanwhile, there is nothing to replace, and the key is there already: an error.
        before = {"_id": unique.key, "jobId": job.id if key is None else key["jobId"]}
        held[unique.key] = _key(job, unique, now)
        taken.append(ReplaceOne(before, held[unique.key], upsert=True))
    return existing, taken


def _key(job: NewJob, unique: UniqueKey, now: datetime) -> Document:
    key: Document = {"_id": unique.key, "jobId": job.id}
    if unique.seconds is not None:
        key["expiresAt"] = after(now, unique.seconds)
    return key


def _in_own_transaction(db: Any, session: Any, jobs: Sequence[NewJob], clock: Clock) -> Steps:
    for attempt in range(TRIES_AT_MOST):
        yield session.start_transaction(read_concern=SNAPSHOT, write_concern=DURABLE)
        try:
            receipts = yield from _steps(db, session, jobs, clock)
            yield session.commit_transaction()
            return receipts
        except PyMongoError as error:
            if session.in_transaction:
                yield session.abort_transaction()
            if not worth_another_try(error, attempt):
                raise
        except BaseException:
            if session.in_transaction:
                yield session.abort_transaction()
            raise
    raise AssertionError("the last try raises")


async def _run(steps: Steps) -> list[Receipt]:
    try:
        waiting = next(steps)
        while True:
            try:
                result = await waiting
            except BaseException as error:
                waiting = steps.throw(error)
            else:
                waiting = steps.send(result)
    except StopIteration as end:
        return list(end.value)


def _run_blocking(steps: Steps) -> list[Receipt]:
    # A synchronous call raises inside the generator, where it is made; what it returns is sent back.
    try:
        result = next(steps)
        while True:
            result = steps.send(result)
    except StopIteration as end:
        return list(end.value)
