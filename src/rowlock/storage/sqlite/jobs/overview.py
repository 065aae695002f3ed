"""SQLite store: running jobs, dead letters by reason, and the history by minute."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import apsw
import orjson

from rowlock.ids import is_uuid
from rowlock.storage.overview import DeadGroup, DeadGroups, History, Minute, Running
from rowlock.storage.records import JobFilter, JobId
from rowlock.storage.sqlite.jobs import counters
from rowlock.storage.sqlite.jobs.operate import of_type
from rowlock.storage.sqlite.rows import Row, json_text, moment
from rowlock.storage.sqlite.sql import run
from rowlock.storage.sqlite.work import Worked

_MINUTE_MICROS = 60_000_000


class Overview(Worked):
    """Store methods for running jobs, dead letters by reason, and the last hours."""

    async def running(self, limit: int) -> list[Running]:
        return await self._read(lambda connection, now: _running(connection, limit))

    async def run_now(self, job_id: JobId) -> bool:
        return is_uuid(job_id) and await self._write(lambda connection, now: _run_now(connection, now, job_id))

    async def dead_groups(self, where: JobFilter, look_at: int, limit: int) -> DeadGroups:
        return await self._read(lambda connection, now: _dead_groups(connection, where, look_at, limit))

    async def history(self, minutes: int) -> History:
        return await self._read(lambda connection, now: _history(connection, now, minutes))

    async def note_lags(self, lags: Mapping[str, float]) -> bool:
        noted = json_text(dict(lags))
        return await self._write(
            lambda connection, now: bool(
                run(connection, "note_lags", {"minute": now // _MINUTE_MICROS, "seconds": noted})
            )
        )


def _running(connection: apsw.Connection, limit: int) -> list[Running]:
    rows = run(connection, "running_first", {"limit": limit})
    return [Running._make((*row[:6], moment(row[6]), *row[7:])) for row in rows]


def _run_now(connection: apsw.Connection, now: int, job_id: JobId) -> bool:
    for seq, lease, attempt, deaths, error, queue in run(connection, "run_now", {"job_id": job_id.lower(), "now": now}):
        kept = {"seq": seq, "lease": lease, "attempt": attempt, "deaths": deaths, "error": error}
        run(connection, "wait_ready", {**kept, "available_at": now, "now": now})
        counters.write(connection, now, {(queue, ""): counters.Change(delayed=-1)})
        return True
    return False


def _dead_groups(connection: apsw.Connection, where: JobFilter, look_at: int, limit: int) -> DeadGroups:
    asked: dict[str, Any] = {"queue": where.queue, "company_id": where.company_id, "look_at": look_at, "limit": limit}
    name = "dead_groups" if where.company_id is None else "dead_groups_of_company"
    asked["type"] = where.type or where.type_prefix
    rows: list[Row] = connection.execute(of_type(name, where), asked).fetchall()
    groups = [
        DeadGroup(type_name, reason, count, moment(first_at), moment(last_at), sample_id)
        for type_name, reason, count, first_at, last_at, sample_id, _ in rows
    ]
    return DeadGroups(groups, rows[0][6] if rows else 0)


def _history(connection: apsw.Connection, now: int, minutes: int) -> History:
    minute = now // _MINUTE_MICROS
    asked = {"since": minute - minutes}
    happened = [Minute(_moment(row[0]), *row[1:]) for row in run(connection, "history", asked)]
    lags = {_moment(at): orjson.loads(seconds) for at, seconds in run(connection, "lags", asked)}
    return History(_moment(minute), happened, lags)


def _moment(minute: int) -> datetime:
    return moment(minute * _MINUTE_MICROS)
