"""Alerts and measures of the SQLite store."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from rowlock.storage.reliability import (
    DeadLetters,
    Measure,
)
from rowlock.storage.sqlite.rows import moment
from rowlock.storage.sqlite.sql import run, run_each, value
from rowlock.storage.sqlite.work import Worked


class Reliability(Worked):
    """Store methods for alerts and measures."""

    # -- alerts and measures -----------------------------------------------------------------------

    async def has_unnotified(self) -> bool:
        return bool(await self._read(lambda connection, now: value(connection, "has_unnotified")))

    async def assign_notification(self, notice_id: str, limit: int) -> list[DeadLetters]:
        return await self._write(lambda connection, now: _assign_notification(connection, notice_id, limit))

    async def add_measures(self, measures: Mapping[Measure, float]) -> None:
        rows = [(*measure, number) for measure, number in measures.items()]
        if rows:
            await self._write(lambda connection, now: run_each(connection, "add_measure", rows))

    async def measures(self) -> dict[Measure, float]:
        rows = await self._read(lambda connection, now: run(connection, "measures"))
        return {Measure(name, labels): number for name, labels, number in rows}


def _assign_notification(connection: apsw.Connection, notice_id: str, limit: int) -> list[DeadLetters]:
    asked = {"notice_id": notice_id}
    run(connection, "assign_notification", {**asked, "limit": limit})
    notified = []
    for job_name, queue_name, count, first_at, last_at, attempts in run(connection, "said_deaths", asked):
        last = run(connection, "last_notified", {**asked, "job_name": job_name, "queue_name": queue_name})
        job_ids = tuple(job_id for job_id, _ in last)
        times = (moment(first_at), moment(last_at))
        notified.append(DeadLetters(job_name, queue_name, count, *times, attempts, job_ids, last[0][1]))
    return notified
