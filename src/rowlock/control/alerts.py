"""Alerts: each is raised once in the fleet, and stays until it is cleared."""

from __future__ import annotations

from datetime import datetime

from rowlock.control.decide import Decision, decide
from rowlock.storage.kinds import Records
from rowlock.storage.reliability import ALERTS, Alert


def raised(alert: Alert | None, name: str, now: datetime) -> Decision[Alert, bool]:
    return Decision(Alert(name, now), True) if alert is None else Decision(alert, False)


def cleared(alert: Alert | None, now: datetime) -> Decision[Alert, datetime | None]:
    return Decision(None, None if alert is None else alert.since)


async def start(records: Records, name: str) -> bool:
    """Raises an alert; returns False if it was raised already."""
    return await decide(records, ALERTS, (name,), lambda alert, now: raised(alert, name, now))


async def clear(records: Records, name: str) -> datetime | None:
    """Ends an alert; returns when it was raised, or None if it was not."""
    return await decide(records, ALERTS, (name,), cleared)
