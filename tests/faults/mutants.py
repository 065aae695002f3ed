"""Mutants: FAULTS_MUTANT removes one guard in the processes of a test. The product itself has no such switch."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from faults.mutation import VARIABLE
from rowlock import control_channel
from rowlock.clock import Clock
from rowlock.control import schedules
from rowlock.errors import SchemaTooNew, StoreError, StoreUnavailable, ValueRefused
from rowlock.jobs.worker.maintenance import Maintenance
from rowlock.jobs.worker.prefetch import Prefetch
from rowlock.jobs.worker.supervisor import Supervisor
from rowlock.storage import migrate
from rowlock.storage.mongo import MongoStore
from rowlock.storage.mongo.jobs import attempts as mongo_attempts
from rowlock.storage.mongo.jobs import settle as mongo_settle
from rowlock.storage.postgres import PostgresStore
from rowlock.storage.postgres.connection import _SESSION, Connections
from rowlock.storage.records import NewJob, Outcome, Receipt, Settlement
from rowlock.storage.sqlite import SqliteStore
from rowlock.storage.sqlite.jobs import settle as sqlite_settle
from rowlock.storage.statements import statements

LATE_SECONDS = 2.0  # longer than a busy machine stands still


class LocalClock:
    """The worker's own clock instead of the store's."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def clock() -> Clock | None:
    return LocalClock() if os.environ.get(VARIABLE) == "local_clock" else None


def apply() -> None:
    """Remove the guard named by FAULTS_MUTANT, if any."""
    name = os.environ.get(VARIABLE, "")
    if name and name != "local_clock":
        _MUTANTS[name]()


def _each_store(verb: str, change: Any, put: Any = setattr) -> None:
    for store in (SqliteStore, PostgresStore, MongoStore):
        put(store, verb, change(getattr(store, verb)))


def early_ack() -> None:
    """Enqueue returns before the commit."""
    kept: set[asyncio.Task[Any]] = set()

    def change(enqueue: Any) -> Any:
        async def changed(self: Any, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
            async def soon() -> None:
                await asyncio.sleep(LATE_SECONDS)
                await enqueue(self, jobs, connection)

            kept.add(asyncio.create_task(soon()))
            return [Receipt(job.id, True) for job in jobs]

        return changed

    _each_store("enqueue", change)


def swallow_errors(put: Any = setattr) -> None:
    """Enqueue reports success even if the store raises an error."""

    def change(enqueue: Any) -> Any:
        async def changed(self: Any, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
            with suppress(StoreError):
                await enqueue(self, jobs, connection)
            return [Receipt(job.id, True) for job in jobs]

        return changed

    _each_store("enqueue", change, put)


def keyless() -> None:
    """Unique keys are ignored."""

    def change(enqueue: Any) -> Any:
        async def changed(self: Any, jobs: Sequence[NewJob], connection: Any = None) -> Any:
            return await enqueue(self, [job._replace(unique=None) for job in jobs], connection)

        return changed

    _each_store("enqueue", change)


def release_counts() -> None:
    """A released job's attempt counts."""

    def change(settle: Any) -> Any:
        async def changed(self: Any, owner: str, settlements: Sequence[Settlement]) -> Any:
            spent = [s._replace(outcome=Outcome.RETRY) if s.outcome == Outcome.RELEASE else s for s in settlements]
            return await settle(self, owner, spent)

        return changed

    _each_store("settle", change)


def no_rescue() -> None:
    """Jobs of dead workers are not rescued."""

    async def nothing(*_: Any) -> int:
        return 0

    Maintenance.rescue = nothing  # type: ignore[method-assign]
    Supervisor._clean_up = nothing  # type: ignore[method-assign,assignment]


def transactions_left_open() -> None:
    """Transactions of lost attempts stay open until MongoDB itself ends them."""

    async def nothing(*_: Any) -> None:
        return

    mongo_attempts._end = nothing  # type: ignore[assignment]


def session_state() -> None:
    """Connections assume that a session keeps its prepared statements, as if there were no pooler."""

    async def no_pooler(_: Any) -> bool:
        return False

    Connections._behind_pooler = no_pooler  # type: ignore[method-assign,assignment]
    _SESSION.clear()  # a pooler rejects these session settings


def unreplicated() -> None:
    """MongoDB acknowledges a write when only the primary has it (w=1)."""
    from pymongo import WriteConcern

    from rowlock.storage.mongo import connection

    connection.DURABLE = connection.TRANSACTION["write_concern"] = WriteConcern(w=1, j=True)


def _sqlite_statement(name: str, old: str, new: str) -> None:
    found: Any = statements("sqlite")
    assert old in found[name], f"the guard of {name} was not found: has it been rewritten?"
    found[name] = found[name].replace(old, new)


def settle_by_id() -> None:
    """SQLite and MongoDB settle an attempt without checking lease and owner."""
    _sqlite_statement("end_attempts", "AND lease = ? AND owner = ?", "AND (lease = ? OR 1) AND (owner = ? OR 1)")
    settled = mongo_settle._settle

    async def unguarded(scope: Any, owner: str, settlements: Sequence[Settlement], deltas: Any) -> Any:
        lost, now = [], None
        for end in settlements:
            held = await scope["jobs"].find_one({"_id": end.job_id, "state": "running"}, session=scope.session)
            holder, lease = (held["owner"], held["lease"]) if held else (owner, end.lease)
            left, now = await settled(scope, holder, [end._replace(lease=lease)], deltas)
            lost += left
        return lost, now

    async def none(_scope: Any, _owner: str, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        """Disable the fast path for successes."""
        return settlements

    mongo_settle._settle, mongo_settle.finish = unguarded, none


def rescue_is_free() -> None:
    """In SQLite and MongoDB, the attempt of a rescued job does not count."""

    def settle_free(connection: Any, now: int, owner: str, settlements: Sequence[Settlement], deltas: Any) -> Any:
        free = [s._replace(outcome=Outcome.RELEASE) for s in settlements]
        return settled(connection, now, owner, free, deltas)

    def rescue(*args: Any) -> Any:
        sqlite_settle._settle = settle_free
        try:
            return rescued(*args)
        finally:
            sqlite_settle._settle = settled

    settled, rescued = sqlite_settle._settle, sqlite_settle.rescue
    sqlite_settle.rescue = rescue
    ended, taken_back = mongo_settle._settle, mongo_settle._rescue

    async def end_free(scope: Any, owner: str, settlements: Sequence[Settlement], deltas: Any) -> Any:
        return await ended(scope, owner, [s._replace(outcome=Outcome.RELEASE) for s in settlements], deltas)

    async def take_back(*args: Any) -> Any:
        mongo_settle._settle = end_free
        try:
            return await taken_back(*args)
        finally:
            mongo_settle._settle = ended

    mongo_settle._rescue = take_back


def free_ticks() -> None:
    """A schedule advances even if another scheduler has already advanced it."""
    moved = schedules.moved

    def changed(schedule: Any, expected: datetime, *more: Any) -> Any:
        time.sleep(0.2)  # others look at the same tick meanwhile, even if processes take turns
        return moved(schedule, schedule.next_at if schedule is not None else expected, *more)

    schedules.moved = changed


def ledger_apart() -> None:
    """The rows of a chunk are committed before its ledger entry."""
    from rowlock.imports.load.chunk import ChunkWork

    load = ChunkWork.load

    async def apart(self: Any, frame: Any, tx: Any) -> Any:
        async with self.context.engine.store.transaction() as own:
            loaded = await load(self, frame, own)
        await asyncio.sleep(LATE_SECONDS)
        return loaded

    setattr(ChunkWork, "load", apart)  # noqa: B010 - a method of someone else's class


def stall_in_chunk() -> None:
    """Removes no guard. On MongoDB without transactions, the first load into each collection hangs after some rows.

    The file `stalled-COLLECTION` holds the id of its process.
    """
    import polars as pl

    from rowlock.storage.mongo.connection import Scope
    from rowlock.storage.mongo.loading import stepwise
    from rowlock.storage.mongo.loading.intents import Intents
    from rowlock.storage.tables import Load, Loaded

    stepwise.WRITE_ROWS = 20
    load = stepwise.Step._load
    record = Intents.record

    async def loading(self: Any, scope: Scope, how: Load, frame: pl.DataFrame, intents: Intents) -> Loaded:
        async def stalling(scope: Scope, *rows: Any) -> None:
            if intents.inserts or intents.updates:
                with suppress(FileExistsError), open(f"stalled-{how.table}", "x") as file:
                    file.write(f"{os.getpid()}\n")
                    file.close()
                    await asyncio.sleep(3_600)
            await record(intents, scope, *rows)

        setattr(intents, "record", stalling)  # noqa: B010 - of this load alone
        return await load(self, scope, how, frame, intents)

    stepwise.Step._load = loading  # type: ignore[method-assign]


def no_intents() -> None:
    """The intents that an earlier attempt recorded before its writes are ignored."""
    from rowlock.storage.mongo.loading.intents import Intents

    async def nothing(*_: Any) -> None: ...

    stall_in_chunk()
    Intents.read = nothing  # type: ignore[method-assign]


def stall_between_parts() -> None:
    """Removes no guard. Each import waits once for its cancellation, after a part of a chunk that has more parts.

    The file `stalled-IMPORT` holds the id of its process.
    """
    from rowlock.imports.load import chunk

    commit = chunk._commit_part

    async def committing(work: Any, job: Any, frame: Any, number: int, last: bool) -> Any:
        done = await commit(work, job, frame, number, last)
        if not last:
            with suppress(FileExistsError), open(f"stalled-{work.record.id}", "x") as file:
                file.write(f"{os.getpid()}\n")
                file.close()
                while not job.cancelled:
                    await asyncio.sleep(0.02)
        return done

    chunk._commit_part = committing


def no_part_lines() -> None:
    """On MongoDB, a part of a chunk leaves no line in the ledger."""
    from rowlock.storage.imports import ChunkEnd, ChunkResult, ImportStatus
    from rowlock.storage.mongo.imports.import_transaction import ImportingTransaction

    stall_between_parts()
    end_chunk = ImportingTransaction.end_chunk

    async def changed(self: Any, import_id: str, index: int, result: ChunkResult, **more: Any) -> ChunkEnd | None:
        if index < -1:
            return ChunkEnd(ImportStatus.RUNNING, completed=0, total=1, errors=0)
        return await end_chunk(self, import_id, index, result, **more)

    ImportingTransaction.end_chunk = changed  # type: ignore[method-assign]


def no_permits() -> None:
    """Calls of another service do not count against its limits."""

    async def taken(*_: Any) -> float:
        return 0.0

    _each_store("take_call", lambda _: taken)


def early_end() -> None:
    """A call counts from its permit instead of its end."""

    def change(take_call: Any) -> Any:
        async def changed(self: Any, permit_id: str, *more: Any) -> float:
            wait: float = await take_call(self, permit_id, *more)
            if wait <= 0:
                await self.end_call(permit_id)
            return wait

        return changed

    _each_store("take_call", change)


def no_holds() -> None:
    """Subject locks exclude nobody."""

    def change(hold_subjects: Any) -> Any:
        async def changed(self: Any, kind: str, keys: Sequence[str], holder: str, seconds: float) -> Any:
            held: dict[str, Any] = {}
            for key in keys:
                own = f"{kind} of {holder}"
                found = await hold_subjects(self, own, [key], holder, seconds)
                held |= found
            return held

        return changed

    _each_store("hold_subjects", change)


def no_marks() -> None:
    """No mark records which job wrote a property last."""

    def change(mark_subjects: Any) -> Any:
        async def changed(self: Any, kind: str, holder: str, marks: Any) -> Any:
            return await mark_subjects(self, kind, holder, {key: {} for key in marks})

        return changed

    _each_store("mark_subjects", change)


def keep_places(put: Any = setattr) -> None:
    """A job keeps its payload and place even if a newer enqueue returned it."""

    def change(enqueue: Any) -> Any:
        async def changed(self: Any, jobs: Sequence[NewJob], connection: Any = None) -> Any:
            kept = [job._replace(unique=job.unique and replace(job.unique, newest_wins=False)) for job in jobs]
            return await enqueue(self, kept, connection)

        return changed

    _each_store("enqueue", change, put)


def free_unseen() -> None:
    """A key is freed even if a newer enqueue returned its job."""

    def change(free_keys: Any) -> Any:
        async def changed(self: Any, newest: Any) -> Any:
            return await free_keys(self, dict.fromkeys(newest, "f" * 8 + "-ffff-7fff-bfff-" + "f" * 12))

        return changed

    _each_store("free_keys", change)


def keyless_deals() -> None:
    """Deals are created without a unique key."""
    from rowlock.sync.hubspot import HubSpot
    from rowlock.sync.hubspot.records import Record

    upsert = HubSpot.upsert

    async def changed(self: Any, kind: str, unique: str, key: str, properties: Any) -> Any:
        if kind != "deals":
            return await upsert(self, kind, unique, key, properties)
        answer = await self._calls.post("/crm/v3/objects/deals", json={"properties": dict(properties)})
        return Record(answer.json["id"], {}, created=True)

    setattr(HubSpot, "upsert", changed)  # noqa: B010 - a method of someone else's class


def errors_are_values() -> None:
    """Every store error except StoreUnavailable is treated as a refused value of the settlement."""

    def change(settle: Any) -> Any:
        async def changed(self: Any, owner: str, settlements: Sequence[Settlement]) -> Any:
            try:
                return await settle(self, owner, settlements)
            except StoreUnavailable:
                raise
            except StoreError as error:
                raise ValueRefused(str(error)) from error

        return changed

    _each_store("settle", change)


def by_last_start() -> None:
    """Prefetched jobs are released only if no job has started for a second."""
    surplus, renewed = Prefetch.surplus, {"starts": 0, "at": 0.0}

    def changed(self: Any, now: float, buffered: int) -> int:
        starts = self._received - buffered
        if starts != renewed["starts"] or not buffered:
            renewed.update(starts=starts, at=now)
        return surplus(self, now, buffered) if now - renewed["at"] > 1 else 0

    setattr(Prefetch, "surplus", changed)  # noqa: B010 - a method of someone else's class


def stdin_channel() -> None:
    """The control channel is also standard input, where subprocesses find it."""
    channel = next(
        (int(name) for name in os.listdir("/proc/self/fd") if int(name) >= control_channel.DESCRIPTOR_MIN), None
    )
    if channel is not None:  # a worker process
        os.dup2(channel, 0)


def no_leash() -> None:
    """A worker detects its supervisor's death by the control channel only."""

    def nothing(*_: Any) -> None: ...

    control_channel.Leash._watch = nothing  # type: ignore[method-assign]
    ctypes.CDLL(None).prctl(1, 0)


def own_schema_only() -> None:
    """A release refuses every newer schema."""
    pending = migrate.pending

    def changed(applied: Any, known: Any) -> Any:
        if migrate.state(applied, known).newer:
            raise SchemaTooNew("a newer release has migrated the store: upgrade this installation")
        return pending(applied, known)

    migrate.pending = changed


def any_schema() -> None:
    """A release accepts every newer schema."""
    state = migrate.state

    def changed(applied: Any, known: Any) -> Any:
        return replace(state(applied, known), oldest=0)

    migrate.state = changed


_MUTANTS = {
    change.__name__: change
    for change in (
        any_schema,
        by_last_start,
        early_ack,
        early_end,
        errors_are_values,
        free_ticks,
        free_unseen,
        keyless,
        keyless_deals,
        ledger_apart,
        no_holds,
        no_intents,
        no_leash,
        no_marks,
        no_part_lines,
        no_permits,
        own_schema_only,
        release_counts,
        no_rescue,
        settle_by_id,
        rescue_is_free,
        session_state,
        stall_between_parts,
        stall_in_chunk,
        stdin_channel,
        transactions_left_open,
        unreplicated,
    )
}
