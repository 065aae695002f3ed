"""Enqueue: takes sequence numbers first, then writes unique keys, jobs and counter deltas in one transaction.

A single job without a unique key needs no transaction: it is its own counter delta.

The same code serves asynchronous and synchronous sessions: `_steps` yields what a pymongo call of either kind returns,
and receives the result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import ReplaceOne, ReturnDocument, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.synchronous.client_session import ClientSession

from rowlock.clock import Clock
from rowlock.errors import NoTransactions
from rowlock.gc_pause import no_garbage
from rowlock.storage.duplicate import duplicate
from rowlock.storage.mongo.connection import (
    MIGRATIONS,
    NO_TRANSACTIONS,
    STATEMENT_SECONDS,
    TRANSACTION,
    Document,
    Scope,
    database,
    is_replicated,
    require_migrated,
)
from rowlock.storage.mongo.dates import after, floor
from rowlock.storage.mongo.documents import BY_ID, DELAYED, JOBS, READY, job_document, json_text
from rowlock.storage.mongo.errors import DUPLICATE, translated_errors
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.counter_deltas import DELTAS, NEW, CounterDeltas
from rowlock.storage.mongo.jobs.newest import NEWEST, newest_of, taken_over
from rowlock.storage.mongo.transaction_retries import Tries
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId, Newest, NewJob, OnConflict, Receipt, UniqueKey

KEYS = "rowlock_keys"
COUNTERS = "rowlock_counters"

INDEXES = (
    Index(KEYS, "expired", (("expiresAt", 1),), expire_seconds=0),
    Index(KEYS, "of_job", (("jobId", 1),)),
    Index(COUNTERS),
)

Steps = Generator[Any, Any, list[Receipt]]

# A number is durable only together with its job, which comes later in the same log: no need to wait for it.
_AT_ONCE = WriteConcern(w=1)

_LATE_SECONDS = 60.0  # without a transaction, a job may be written this long after its key


class Producing(Worked):
    """Enqueues jobs and frees their unique keys."""

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        if not jobs:
            return []
        if connection is None:
            return await self._enqueue_alone(jobs)
        if isinstance(connection, AsyncClientSession):
            with translated_errors(self.url):
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
        with translated_errors(self.url):
            return _run_blocking(self._through(connection, jobs))

    async def newest(self, ids: Sequence[JobId]) -> dict[JobId, Newest]:
        found = await self._plain(lambda scope: newest_of(scope, ids))
        return {id: Newest(one["newest"], json_text(one, "payload") or "{}") for id, one in found.items()}

    async def free_keys(self, newest: Mapping[JobId, JobId]) -> list[JobId]:
        return await self._atomic(lambda scope: _free(scope, newest))

    async def depth(self, queue: str, at_most: int) -> int:
        async def work(scope: Scope) -> int:
            found = 0
            for where in (
                {"state": READY, "limitKey": ""},
                {"state": READY, "limitKey": {"$gt": ""}},
                {"state": DELAYED},
            ):
                if found < at_most:  # each condition has its own index
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
        """Enqueue through the caller's session: in its transaction, or in a new one if it has none."""
        db = database(session.client, self._database)
        if not self._checked:
            require_migrated((yield db[MIGRATIONS].find_one({}, {"_id": 1})), self.url)
            if not is_replicated((yield session.client.admin.command("hello"))):
                raise NoTransactions(f"enqueue(connection=...): {NO_TRANSACTIONS}, or enqueue without connection=")
            self._checked = True
        if session.in_transaction:
            return (yield from _steps(db, session, jobs, self.clock))
        return (yield from _in_own_transaction(db, session, jobs, self.clock))

    _database: str
    _checked: bool = False  # whether a schema and transactions were found


async def add(scope: Scope, jobs: Sequence[NewJob], *, answer_seconds: float | None = None) -> list[Receipt]:
    """Enqueue in this scope; raises DuplicateJob for the first job that may not share its key, having added nothing.

    Raises TimeoutError if the sequence numbers, which are taken outside of the transaction, take longer than
    `answer_seconds` (None: no limit).
    """
    return await _run(_steps(scope.db, scope.session, jobs, scope.clock), answer_seconds) if jobs else []


async def _free(scope: Scope, newest: Mapping[JobId, JobId]) -> list[JobId]:
    """Delete the keys of these jobs, unless their `newest` is later than the given one; return the jobs that keep them.

    In a transaction the write fails at once while an enqueue is open, and the pause before the next try needs no
    connection. Outside of one it would wait for the enqueue on a connection that claims and settlements need.
    """
    holders = {"_id": {"$in": list(newest)}, "releasesKey": True}
    kept = []
    for job in await scope[JOBS].find(holders, {"uniqueKey": 1}, hint=BY_ID, session=scope.session).to_list():
        ours = {"_id": job["uniqueKey"], "jobId": job["_id"]}
        gone = await scope[KEYS].delete_one(
            ours | {"newest": {"$not": {"$gt": newest[job["_id"]]}}}, session=scope.session
        )
        if not gone.deleted_count and await scope[KEYS].find_one(ours, {"_id": 1}, session=scope.session) is not None:
            kept.append(job["_id"])
    return kept


async def _take_back(scope: Scope, jobs: Sequence[NewJob]) -> None:
    """Without transactions: delete the part of a failed batch that was written."""
    ours = [job.id for job in jobs]
    await scope[JOBS].delete_many({"_id": {"$in": ours}, "state": {"$in": [READY, DELAYED]}, "lease": 0})
    await scope[KEYS].delete_many({"jobId": {"$in": ours}})


def _steps(db: Any, session: Any, jobs: Sequence[NewJob], clock: Clock) -> Steps:
    # Not in the transaction: concurrent enqueues would have to wait for each other's commit.
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
    existing: dict[int, Receipt] = {}
    active: set[JobId] = set()  # jobs that hold a key while they are active
    wanted = [job.unique.key for job in jobs if job.unique is not None]
    if wanted:
        held = yield db[KEYS].find({"_id": {"$in": wanted}}, session=session).to_list()
        holders, taken = _take_keys(jobs, {key["_id"]: key for key in held}, now, together=session is not None)
        if holders:
            named = {"_id": {"$in": list(set(holders.values()))}}
            found = yield db[JOBS].find(named, {"releasesKey": 1}, session=session).to_list()
            active |= {job.id for job in jobs if job.unique is not None and job.unique.while_active}
            active |= {one["_id"] for one in found if one.get("releasesKey")}
            there = {job.id for job in jobs} | {one["_id"] for one in found}
            # Without a transaction a key is written before its job, which may be missing for that reason.
            since = after(now, -_LATE_SECONDS)
            there |= {key["jobId"] for key in held if "at" in key and key["at"] > since}
            for place, holder in holders.items():
                existing[place] = Receipt(holder, False, holder not in there)
                unique = jobs[place].unique
                if unique is not None and unique.on_conflict is OnConflict.REJECT:
                    raise duplicate(jobs[place], existing[place])
        if taken:
            yield db[KEYS].bulk_write(taken, session=session)
    first = counted["last"] - len(jobs) + 1
    created = [job_document(job, first + place, now) for place, job in enumerate(jobs) if place not in existing]
    if len(created) == 1:
        yield db[JOBS].insert_one(created[0] | NEW, session=session)
    elif created:
        deltas = CounterDeltas()
        for document in created:
            change = deltas[document["queue"], document["type"]]
            change.alive += 1
            change.rings = True
        yield db[JOBS].insert_many(created, session=session)
        yield db[DELTAS].insert_many(deltas.documents(now), session=session)
    for place, receipt in existing.items():
        unique = jobs[place].unique
        if unique is not None and unique.newest_wins and receipt.job_id in active:
            yield from _take_over(db, session, jobs[place], unique, receipt.job_id)
    with no_garbage():
        return [existing.get(place) or Receipt(job.id, True) for place, job in enumerate(jobs)]


def _take_over(db: Any, session: Any, job: NewJob, unique: UniqueKey, holder: JobId) -> Generator[Any, Any, None]:
    """Give the payload of a job, and its place in the order, to the older job that holds its key."""
    if job.id < holder:
        return
    yield db[NEWEST].update_one(*taken_over(holder, job), upsert=True, session=session)
    # The key last: without a transaction, a settlement may free it before this write; then this is retried.
    kept = yield db[KEYS].update_one(
        {"_id": unique.key, "jobId": holder}, {"$max": {"newest": job.id}}, session=session
    )
    if not kept.matched_count:
        raise DuplicateKeyError("the job that holds the key has just freed it", DUPLICATE)


def _take_keys(
    jobs: Sequence[NewJob], held: dict[str, Document], now: datetime, *, together: bool
) -> tuple[dict[int, str], list[ReplaceOne[Document]]]:
    """Return the holders of taken keys by place, and writes that take the rest, `together` with the jobs or before."""
    existing: dict[int, str] = {}
    taken = []
    for place, job in enumerate(jobs):
        unique = job.unique
        if unique is None:
            continue
        key = held.get(unique.key)
        if key is not None and key["jobId"] != job.id and not ("expiresAt" in key and key["expiresAt"] <= now):
            existing[place] = key["jobId"]
            continue
        # If another caller has taken it meanwhile, nothing matches, and the upsert fails with a duplicate key.
        before = {"_id": unique.key, "jobId": job.id if key is None else key["jobId"]}
        held[unique.key] = _key(job, unique, now) if together else _key(job, unique, now) | {"at": now}
        taken.append(ReplaceOne(before, held[unique.key], upsert=True))
    return existing, taken


def _key(job: NewJob, unique: UniqueKey, now: datetime) -> Document:
    key: Document = {"_id": unique.key, "jobId": job.id}
    if unique.seconds is not None:
        key["expiresAt"] = after(now, unique.seconds)
    return key


def _in_own_transaction(db: Any, session: Any, jobs: Sequence[NewJob], clock: Clock) -> Steps:
    tries = Tries(STATEMENT_SECONDS)
    while True:
        yield session.start_transaction(**TRANSACTION)
        try:
            receipts = yield from _steps(db, session, jobs, clock)
            yield session.commit_transaction()
            return receipts
        except PyMongoError as error:
            if session.in_transaction:
                yield session.abort_transaction()
            if not tries.again(error):
                raise
        except BaseException:
            if session.in_transaction:
                yield session.abort_transaction()
            raise
        sleep = time.sleep if isinstance(session, ClientSession) else asyncio.sleep
        yield sleep(tries.pause_seconds)


async def _in_time(statement: Awaitable[Any], seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        return await statement


async def _run(steps: Steps, first_seconds: float | None = None) -> list[Receipt]:
    try:
        waiting = next(steps)
        if first_seconds is not None:
            waiting = _in_time(waiting, first_seconds)
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
    # A synchronous call runs, and raises, inside the generator; its result is sent back.
    try:
        result = next(steps)
        while True:
            result = steps.send(result)
    except StopIteration as end:
        return list(end.value)
