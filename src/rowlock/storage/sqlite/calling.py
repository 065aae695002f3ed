"""SQLite store: rate limits of outbound calls, and subject locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw
import orjson

from rowlock.storage.calls import (
    CallBudget,
    CallLimit,
    Marks,
    PermitId,
    checked_key,
    checked_limits,
    checked_seconds,
    ended,
    given_marks,
    kept_keys,
    kept_marks,
    later_marks,
)
from rowlock.storage.sqlite.rows import duration_micros, json_text, moment_or_none
from rowlock.storage.sqlite.sql import run, run_each, value
from rowlock.storage.sqlite.work import Worked

_DAY_SECONDS = 24 * 3600
_TICK = 1_000
"""In microseconds. SQLite's clock has whole milliseconds: a call that ended at one may have lasted until the next."""


class Calling(Worked):
    """Store methods that keep outbound calls within their rate limits, and lock subjects."""

    async def take_call(self, permit_id: PermitId, limits: Sequence[CallLimit], hold_seconds: float) -> float:
        wanted, hold = checked_limits(limits), duration_micros(checked_seconds(hold_seconds))
        return await self._write(lambda connection, now: _take(connection, now, permit_id, wanted, hold)) / 1e6

    async def end_call(self, permit_id: PermitId, *, made: bool = True) -> None:
        await self._write(lambda connection, now: _end(connection, now, permit_id, made))

    async def rest_calls(self, key: str, seconds: float) -> None:
        asked, rest = checked_key(key), duration_micros(checked_seconds(seconds))
        await self._write(lambda connection, now: run(connection, "rest_calls", {"key": asked, "until": now + rest}))

    async def call_budget(self, keys: Sequence[str]) -> list[CallBudget]:
        return await self._read(lambda connection, now: [_budget(connection, now, key) for key in keys])

    async def hold_subjects(self, kind: str, keys: Sequence[str], holder: str, seconds: float) -> dict[str, Marks]:
        given, held = kept_keys(keys), duration_micros(checked_seconds(seconds))
        rows = await self._write(
            lambda connection, now: run_each(
                connection, "hold_subject", [(kind, key, holder, now + held, now) for key in given]
            )
        )
        return {given[key]: given_marks(orjson.loads(marks)) for key, marks in rows}

    async def mark_subjects(self, kind: str, holder: str, marks: Mapping[str, Mapping[str, str]]) -> list[str]:
        given = kept_keys(marks)
        told = {key: kept_marks(marks[name]) for key, name in given.items()}
        held = await self._write(lambda connection, now: _mark(connection, now, kind, holder, told))
        return [name for key, name in given.items() if key in held]

    async def free_subjects(self, kind: str, holder: str, keys: Sequence[str]) -> None:
        given = kept_keys(keys)
        await self._write(
            lambda connection, now: run_each(connection, "free_subject", [(now, kind, key, holder) for key in given])
        )

    async def prune_calls(self, days: float, limit: int) -> int:
        return await self._write(lambda connection, now: _prune(connection, now, days, limit))


def _take(connection: apsw.Connection, now: int, permit_id: PermitId, limits: list[CallLimit], hold: int) -> int:
    """Take a permit for the call and return 0, or return the microseconds to wait."""
    asked = {"id": permit_id, "now": now, "hold": hold}
    running: int | None = value(connection, "call_running", asked)
    if running == 0:
        raise ended(permit_id)
    if running is not None:
        run(connection, "hold_call", asked)
        return 0
    free_at = [
        value(connection, "call_free_at", {"now": now, "key": limit.key, "count": limit.count}) for limit in limits
    ]
    if until := max((moment for moment in free_at if moment is not None), default=0):
        return int(until) - now
    for limit in limits:
        seconds, step = duration_micros(limit.seconds) + _TICK, duration_micros(limit.step_seconds)
        run(connection, "forget_calls", {"key": limit.key, "now": now})
        run(connection, "take_call", {**asked, "key": limit.key, "seconds": seconds, "step": step})
    return 0


def _end(connection: apsw.Connection, now: int, permit_id: PermitId, made: bool) -> None:
    if made:
        run(connection, "end_call", {"id": permit_id, "now": now})
    summed = run(connection, "drop_call", {"id": permit_id})
    if made:
        # Add the call to the sum of its step; rounded up to the end of the step, no call counts for too short a time.
        run_each(connection, "sum_call", [(key, -(-(now + seconds) // step) * step) for key, seconds, step in summed])


def _budget(connection: apsw.Connection, now: int, key: str) -> CallBudget:
    ((in_use, rests_until),) = run(connection, "call_budget", {"key": key, "now": now})
    return CallBudget(key, in_use, moment_or_none(rests_until))


def _mark(connection: apsw.Connection, now: int, kind: str, holder: str, told: Mapping[str, Marks]) -> set[str]:
    """Update the marks of the subjects that `holder` still holds and free them; return their keys."""
    held: dict[str, str] = dict(run_each(connection, "held_subject", [(kind, key, holder) for key in told]))
    marks = {key: json_text(later_marks(orjson.loads(before), told[key])) for key, before in held.items()}
    run_each(connection, "mark_subject", [(after, now, kind, key) for key, after in marks.items()])
    return set(held)


def _prune(connection: apsw.Connection, now: int, days: float, limit: int) -> int:
    asked = {"now": now, "limit": limit}
    before = now - duration_micros(days * _DAY_SECONDS)
    past = [*run(connection, "prune_calls", asked), *run(connection, "prune_call_sums", asked)]
    return len(past) + len(run(connection, "prune_subjects", {**asked, "before": before}))
