"""Guards taken out on purpose: by FAULTS_MUTANT in the processes of a test, never by a switch in the product."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rowlock.clock import Clock
from rowlock.errors import StoreError
from rowlock.jobs.keeper import Keeper
from rowlock.jobs.supervisor import Supervisor
from rowlock.storage.mongo import MongoStore
from rowlock.storage.mongo import settle as mongo_settle
from rowlock.storage.postgres import PostgresStore
from rowlock.storage.postgres.connection import Connections
from rowlock.storage.records import NewJob, Outcome, Receipt, Settlement
from rowlock.storage.sqlite import SqliteStore
from rowlock.storage.sqlite import settle as sqlite_settle
from rowlock.storage.statements import statements

VARIABLE = "FAULTS_MUTANT"
LATE_SECONDS = 0.2


class LocalClock:
    """What a worker's own clock says."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def clock() -> Clock | None:
    return LocalClock() if os.environ.get(VARIABLE) == "local_clock" else None


def apply() -> None:
    """Take out the guard that the environment names, if it names one."""
    name = os.environ.get(VARIABLE, "")
    if name and name != "local_clock":
        _MUTANTS[name]()


def _each_store(verb: str, change: Any, put: Any = setattr) -> None:
    for store in (SqliteStore, PostgresStore, MongoStore):
        put(store, verb, change(getattr(store, verb)))


def early_ack() -> None:
    """Enqueue answers before the commit."""
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
    """Enqueue answers as if all were well, whatever the store said."""

    def change(enqueue: Any) -> Any:
        async def changed(self: Any, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
            with suppress(StoreError):
                await enqueue(self, jobs, connection)
            return [Receipt(job.id, True) for job in jobs]

        return changed

    _each_store("enqueue", change, put)


def keyless() -> None:
    """Unique keys are not looked at."""

    def change(enqueue: Any) -> Any:
        async def changed(self: Any, jobs: Sequence[NewJob], connection: Any = None) -> Any:
            return await enqueue(self, [job._replace(unique=None) for job in jobs], connection)

        return changed

    _each_store("enqueue", change)


def release_counts() -> None:
    """A job that is given back has spent its attempt."""

    def change(settle: Any) -> Any:
        async def changed(self: Any, owner: str, settlements: Sequence[Settlement]) -> Any:
            spent = [s._replace(outcome=Outcome.RETRY) if s.outcome == Outcome.RELEASE else s for s in settlements]
            return await settle(self, owner, spent)

        return changed

    _each_store("settle", change)


def no_rescue() -> None:
    """Nobody looks after the jobs of the dead."""

    async def nothing(*_: Any) -> int:
        return 0

    Keeper.rescue = nothing  # type: ignore[method-assign]
    Supervisor._clean_up = nothing  # type: ignore[method-assign,assignment]


def session_state() -> None:
    """Prepared statements are expected where they were left: in the same session."""

    async def no_pooler(_: Any) -> bool:
        return False

    Connections._behind_pooler = no_pooler  # type: ignore[method-assign,assignment]


def unreplicated() -> None:
    """MongoDB answers when the primary alone has a write."""
    from pymongo import WriteConcern

    from rowlock.storage.mongo import connection

    connection.DURABLE = WriteConcern(w=1, j=True)


def _sqlite_statement(name: str, old: str, new: str) -> None:
    found: Any = statements("sqlite")
    assert old in found[name], f"the guard of {name} was not found: has it been rewritten?"
    found[name] = found[name].replace(old, new)


def settle_by_id() -> None:
    """SQLite and MongoDB end an attempt whoever holds the lease."""
    _sqlite_statement("end_attempts", "AND lease = ? AND owner = ?", "AND (lease = ? OR 1) AND (owner = ? OR 1)")
    settled = mongo_settle._settle

    async def unguarded(scope: Any, owner: str, settlements: Sequence[Settlement], tally: Any) -> Any:
        lost, now = [], None
        for end in settlements:
            held = await scope["jobs"].find_one({"_id": end.job_id, "state": "running"}, session=scope.session)
            holder, lease = (held["owner"], held["lease"]) if held else (owner, end.lease)
            left, now = await settled(scope, holder, [end._replace(lease=lease)], tally)
            lost += left
        return lost, now

    async def none(_scope: Any, _owner: str, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        """Not by the shorter way of those that succeeded."""
        return settlements

    mongo_settle._settle, mongo_settle.finish = unguarded, none


def rescue_is_free() -> None:
    """In SQLite and MongoDB, a job whose lease ran out gets its attempt back."""

    def settle_free(connection: Any, now: int, owner: str, settlements: Sequence[Settlement], tally: Any) -> Any:
        free = [s._replace(outcome=Outcome.RELEASE) for s in settlements]
        return settled(connection, now, owner, free, tally)

    def rescue(*args: Any) -> Any:
        sqlite_settle._settle = settle_free
        try:
            return rescued(*args)
        finally:
            sqlite_settle._settle = settled

    settled, rescued = sqlite_settle._settle, sqlite_settle.rescue
    sqlite_settle.rescue = rescue
    ended, taken_back = mongo_settle._settle, mongo_settle._rescue

    async def end_free(scope: Any, owner: str, settlements: Sequence[Settlement], tally: Any) -> Any:
        return await ended(scope, owner, [s._replace(outcome=Outcome.RELEASE) for s in settlements], tally)

    async def take_back(*args: Any) -> Any:
        mongo_settle._settle = end_free
        try:
            return await taken_back(*args)
        finally:
            mongo_settle._settle = ended

    mongo_settle._rescue = take_back


def free_ticks() -> None:
    """A schedule moves on whoever else has moved it."""
    named: Any = statements("postgres")
    named["advance_schedule"] = named["advance_schedule"].replace("AND next_at = $2", "AND $2::timestamptz IS NOT NULL")


def ledger_apart() -> None:
    """The rows of a chunk are committed before its line in the ledger."""
    from rowlock.imports.chunk import ChunkWork

    load = ChunkWork.load

    async def apart(self: Any, frame: Any, tx: Any) -> Any:
        async with self.shop.engine.store.transaction() as own:
            loaded = await load(self, frame, own)
        await asyncio.sleep(LATE_SECONDS)
        return loaded

    setattr(ChunkWork, "load", apart)  # noqa: B010 - a method of someone else's class


def no_permits() -> None:
    """Calls of another service are not counted."""

    async def taken(*_: Any) -> float:
        return 0.0

    _each_store("take_call", lambda _: taken)


def early_end() -> None:
    """A call counts from its permit, not from its end."""

    def change(take_call: Any) -> Any:
        async def changed(self: Any, permit_id: str, *more: Any) -> float:
            wait: float = await take_call(self, permit_id, *more)
            if wait <= 0:
                await self.end_call(permit_id)
            return wait

        return changed

    _each_store("take_call", change)


def no_holds() -> None:
    """Everyone may work on every subject at the same time."""

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
    """Nobody notes which job wrote a property last."""

    def change(mark_subjects: Any) -> Any:
        async def changed(self: Any, kind: str, holder: str, marks: Any) -> Any:
            return await mark_subjects(self, kind, holder, {key: {} for key in marks})

        return changed

    _each_store("mark_subjects", change)


def keyless_deals() -> None:
    """Deals are created as they come."""
    from rowlock.sync.hubspot import HubSpot
    from rowlock.sync.hubspot.records import Record

    upsert = HubSpot.upsert

    async def changed(self: Any, kind: str, unique: str, key: str, properties: Any) -> Any:
        if kind != "deals":
            return await upsert(self, kind, unique, key, properties)
        answer = await self._calls.post("/crm/v3/objects/deals", json={"properties": dict(properties)})
        return Record(answer.json["id"], {}, created=True)

    setattr(HubSpot, "upsert", changed)  # noqa: B010 - a method of someone else's class


_MUTANTS = {
    change.__name__: change
    for change in (
        early_ack,
        early_end,
        free_ticks,
        keyless,
        keyless_deals,
        ledger_apart,
        no_holds,
        no_marks,
        no_permits,
        release_counts,
        no_rescue,
        settle_by_id,
        rescue_is_free,
        session_state,
        unreplicated,
    )
}
