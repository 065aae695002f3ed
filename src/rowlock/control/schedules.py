"""Schedules and their runs: each tick enqueues one job, however many schedulers run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from rowlock.control.decide import Decision, days_before, decide
from rowlock.storage.contract import RecordTransaction, Store
from rowlock.storage.kinds import Records, Seen
from rowlock.storage.records import JobFilter, JobId, JobRecord, Receipt, Status
from rowlock.storage.reliability import RUNS, SCHEDULES, RunRecord, RunStatus, ScheduleRecord, Tick

_JOBS_MAX = 500
"""How many jobs are looked up at once."""

_LATE = timedelta(seconds=60)
"""Without transactions, a run is recorded before its job; a job that is missing for longer has been deleted."""

# -- rules -------------------------------------------------------------------------------------------

Changed = Decision[ScheduleRecord, bool]


def declared(schedule: ScheduleRecord | None, name: str, spec: str, first: datetime) -> Changed:
    """A schedule that is new or has another spec than before continues with its first tick."""
    if schedule is None:
        return Decision(ScheduleRecord(name, spec, first, None, None), True)
    if schedule.spec == spec:
        return Decision(schedule, True)
    return Decision(replace(schedule, spec=spec, next_at=first), True)


def moved(schedule: ScheduleRecord | None, expected: datetime, next_at: datetime, last: datetime | None) -> Changed:
    """A schedule that expects this tick and is not paused continues with another; `last` is the tick that fires."""
    if schedule is None or schedule.next_at != expected or schedule.paused_at is not None:
        return Decision(schedule, False)
    return Decision(replace(schedule, next_at=next_at, last_tick=last or schedule.last_tick), True)


def paused(schedule: ScheduleRecord | None, now: datetime) -> Changed:
    if schedule is None:
        return Decision(None, False)
    return Decision(replace(schedule, paused_at=schedule.paused_at or now), True)


def resumed(schedule: ScheduleRecord | None, next_at: datetime) -> Changed:
    if schedule is None or schedule.paused_at is None:
        return Decision(schedule, schedule is not None)
    return Decision(replace(schedule, paused_at=None, next_at=next_at), True)


def closed(run: RunRecord, job: JobRecord | None, now: datetime) -> RunRecord:
    """Returns the run with the end of its job; unchanged if the job has not ended."""
    if job is None and now - run.enqueued_at < _LATE:
        return run
    if job is None:
        error = "its job was deleted before its end was recorded"
        return replace(run, status=RunStatus.UNKNOWN, ended_at=now, error=error)
    if not job.status.final:
        return run
    return replace(
        run, status=RunStatus(job.status), started_at=job.started_at, ended_at=job.finished_at, error=job.error
    )


def shown(run: RunRecord, job: JobRecord | None) -> RunRecord:
    """Returns a run as it is now, before its end is recorded."""
    if job is None or run.ended_at is not None:
        return run
    if job.status is Status.PROCESSING:
        return replace(run, status=RunStatus.RUNNING, started_at=job.started_at)
    return closed(run, job, run.enqueued_at)


# -- schedules ---------------------------------------------------------------------------------------


async def declare(records: Records, schedules: Iterable[tuple[str, str, datetime]]) -> None:
    """Registers these (name, spec, first tick); a known schedule with the same spec stays unchanged."""
    specs = {record.name: record.spec for record in await listed(records)}
    for name, spec, first in schedules:
        if specs.get(name) != spec:
            await decide(
                records,
                SCHEDULES,
                (name,),
                lambda schedule, now, new=(name, spec, first): declared(schedule, *new),  # type: ignore[misc]
            )


async def listed(records: Records) -> list[ScheduleRecord]:
    """Returns every schedule, by name."""
    return await records.scan(SCHEDULES)


async def move(records: Records, name: str, expected: datetime, next_at: datetime) -> bool:
    """Replaces the next tick. Returns False and does nothing if it is not `expected` or the schedule is paused."""
    return await decide(records, SCHEDULES, (name,), lambda schedule, now: moved(schedule, expected, next_at, None))


async def pause(records: Records, name: str) -> bool:
    """Stops the schedule's ticks until it is resumed; returns False for an unknown schedule."""
    return await decide(records, SCHEDULES, (name,), paused)


async def resume(records: Records, name: str, next_at: datetime) -> bool:
    """Continues a paused schedule with this tick; returns False for an unknown schedule."""
    return await decide(records, SCHEDULES, (name,), lambda schedule, now: resumed(schedule, next_at))


async def fire(store: Store, tick: Tick) -> Receipt | None:
    """Enqueues the job of a tick, records the run and advances the schedule, together and once in the fleet.

    Returns None if another process did so already, the schedule is paused, or the tick has no job. A tick that has
    already run only advances the schedule.
    """
    rolls_back = await store.lacks_transactions() is None
    return await store.atomic(lambda transaction: _fire(transaction, tick, rolls_back=rolls_back))


async def _fire(transaction: RecordTransaction, tick: Tick, *, rolls_back: bool) -> Receipt | None:
    seen: Seen[RunRecord] = await transaction.read(RUNS, tick.name, tick.at)  # for the store's time
    schedule = None if tick.expected is None else await _advance(transaction, tick, tick.expected)
    if tick.expected is not None and schedule is None:
        return None
    status, ended_at = (RunStatus.MISSED, seen.now) if tick.job is None else (RunStatus.WAITING, None)
    run = RunRecord(tick.name, tick.at, tick.job and tick.job.id, status, seen.now, None, ended_at, None)
    # The run first: without transactions it alone keeps two processes from enqueueing the job of one tick.
    if not await transaction.insert(RUNS, run) or tick.job is None:
        return None
    try:
        (receipt,) = await transaction.enqueue([tick.job])
    except BaseException:
        if not rolls_back:
            await _take_back(transaction, tick, run, schedule)
        raise
    if receipt.job_id != run.job_id:  # the job that holds the unique key
        await transaction.update(RUNS, run, replace(run, job_id=receipt.job_id))
    return receipt


async def _advance(records: Records, tick: Tick, expected: datetime) -> ScheduleRecord | None:
    """Advances the schedule if this is its turn; returns the schedule before, or None if the tick may not fire."""

    def rule(schedule: ScheduleRecord | None, now: datetime) -> Decision[ScheduleRecord, ScheduleRecord | None]:
        after, fires = moved(schedule, expected, tick.next_at, tick.at)
        return Decision(after, schedule if fires else None)

    return await decide(records, SCHEDULES, (tick.name,), rule)


async def _take_back(records: Records, tick: Tick, run: RunRecord, schedule: ScheduleRecord | None) -> None:
    """Undoes the writes for a tick whose job was refused; a schedule that others have moved since stays."""
    await decide(records, RUNS, (run.name, run.tick), lambda found, now: Decision(None, None))
    if schedule is not None:
        await records.update(SCHEDULES, replace(schedule, next_at=tick.next_at, last_tick=tick.at), schedule)


# -- runs --------------------------------------------------------------------------------------------


async def close_runs(store: Store, limit: int) -> list[RunRecord]:
    """Records the end of up to `limit` runs whose job is over; returns these runs."""
    ended = list[RunRecord]()
    runs = await store.scan(RUNS, "ended", equal={"ended_at": None})
    for start in range(0, len(runs), _JOBS_MAX):
        part = runs[start : start + _JOBS_MAX]
        jobs, now = await _jobs_of(store, part), await store.now()
        for run in part:
            if len(ended) == limit:
                return ended
            end = closed(run, jobs.get(run.job_id or ""), now)
            if end is not run and await store.update(RUNS, run, end):
                ended.append(end)
    return ended


async def list_runs(store: Store, name: str | None, limit: int, before: datetime | None = None) -> list[RunRecord]:
    """Returns runs, the latest tick first."""
    by, equal = ("in_time", {}) if name is None else ("of_schedule", {"name": name})
    runs = await store.scan(RUNS, by, equal=equal, before=before, limit=limit)
    jobs = await _jobs_of(store, [run for run in runs if run.ended_at is None])
    return [shown(run, jobs.get(run.job_id or "")) for run in runs]


async def prune_runs(store: Store, days: float, limit: int) -> int:
    """Removes up to `limit` runs that ended more than `days` ago, oldest first; returns how many."""
    return await store.remove(RUNS, "ended", days_before(await store.now(), days), limit)


async def _jobs_of(store: Store, runs: Sequence[RunRecord]) -> dict[JobId, JobRecord]:
    """Returns the jobs of these runs that exist."""
    ids = [run.job_id for run in runs if run.job_id is not None]
    return {job.id: job for job in (await store.page(JobFilter(ids=ids), len(ids))).jobs} if ids else {}
