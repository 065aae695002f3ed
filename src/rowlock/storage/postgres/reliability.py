"""Alerts and measures of the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rowlock.clock import Clock
from rowlock.storage.postgres.connection import SQL, Connections
from rowlock.storage.reliability import (
    DeadLetters,
    Measure,
)

_ONE_RUN = "schedule_runs_pkey"


class Reliability:
    """The verbs for alerts and measures."""

    _connections: Connections
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    # -- alerts and measures -----------------------------------------------------------------------

    async def has_unnotified(self) -> bool:
        return bool(await self._connections.value("has_unnotified"))

    async def assign_notification(self, notice_id: str, limit: int) -> list[DeadLetters]:
        async with self._connections.connection(transaction=True) as connection:
            await connection.execute(SQL["assign_notification"], notice_id, limit)
            rows = await connection.fetch(SQL["said_deaths"], notice_id)
        return [DeadLetters(row[0], row[1], row[2], row[3], row[4], row[5], tuple(row[6]), row[7]) for row in rows]

    async def add_measures(self, measures: Mapping[Measure, float]) -> None:
        if measures:
            names, labels = zip(*measures, strict=True)
            await self._connections.fetch("add_measures", names, labels, list(measures.values()))

    async def measures(self) -> dict[Measure, float]:
        return {Measure(row[0], row[1]): row[2] for row in await self._connections.fetch("measures")}
