"""The loop of every rule: read a record, decide, and write if the record is still the one that was read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from rowlock.errors import StoreConflict
from rowlock.storage.kinds import MOMENT, Kind, R, Records, Seen

A = TypeVar("A")

TRIES_MAX = 100
"""How often a decision is repeated because another caller has changed the record in between."""


class Decision(NamedTuple, Generic[R, A]):
    """What a rule decided: the record as it shall be, None to have none, and the answer to the caller."""

    record: R | None
    answer: A


Rule = Callable[[R | None, datetime], Decision[R, A]]
"""Takes the record, None if there is none, and the store's time. It is a pure function: it may be called again."""


async def decide(records: Records, kind: Kind[R], key: tuple[Any, ...], rule: Rule[R, A]) -> A:
    """Changes the record with this key as the rule decides, on the record's current state; returns the rule's answer.

    Raises StoreConflict if other callers were quicker TRIES_MAX times.
    """
    for _ in range(TRIES_MAX):
        seen: Seen[R] = await records.read(kind, *key)
        decision = rule(seen.record, seen.now)
        if await _written(records, kind, seen.record, decision.record):
            return decision.answer
    raise StoreConflict(
        f"{kind.table} {'/'.join(map(str, key))}: other callers changed it {TRIES_MAX} times; try again"
    )


async def _written(records: Records, kind: Kind[R], found: R | None, changed: R | None) -> bool:
    if changed == found:
        return True
    if found is None:
        assert changed is not None
        return await records.insert(kind, changed)
    if changed is None:
        return await records.delete(kind, found)
    return await records.update(kind, found, changed)


_EVER_SECONDS = 3e10
"""950 years: a longer time means "never", and a moment so far away is none that datetime has."""


def later(now: datetime, seconds: float) -> datetime:
    """Returns the moment `seconds` later, rounded up to what every store keeps."""
    seconds = max(-_EVER_SECONDS, min(seconds, _EVER_SECONDS))
    return now - timedelta(seconds=-seconds) // MOMENT * MOMENT


def days_before(now: datetime, days: float) -> datetime:
    return later(now, -days * 24 * 3600)
