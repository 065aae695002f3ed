"""Maintenance: when it checks for short leases."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.jobs.worker import maintenance as maintenance
from rowlock.jobs.worker.maintenance import Maintenance
from rowlock.storage.records import WorkerId

LEASE_SECONDS = 1.0


@pytest.mark.parametrize("look_seconds", [0.0, 0.001, 0.02, 0.08, 0.2])
async def test_a_lease_of_a_second_is_renewed_in_time_however_long_a_look_takes(
    look_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is claimed just after the store has answered a look; each call of the store takes as long as a look."""
    now, claimed_at, looks = 0.0, -1.0, 0

    async def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def shortest_lease(owners: Sequence[WorkerId]) -> float | None:
        nonlocal claimed_at, looks
        found = LEASE_SECONDS if claimed_at >= 0 else None
        if claimed_at < 0:
            claimed_at = now  # the answer is of this moment
        looks += 1
        await pass_time(look_seconds)
        return found

    async def beat() -> None:
        await pass_time(look_seconds)

    monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(maintenance, "asyncio", SimpleNamespace(sleep=pass_time))
    one: Any = object.__new__(Maintenance)
    one._engine = SimpleNamespace(store=SimpleNamespace(shortest_lease=shortest_lease), heartbeat_seconds=lambda: 10.0)
    one._running = lambda: ["worker"]
    one._beat = beat
    await one.beat()
    assert looks == 2
    noticed_after = now - claimed_at
    assert noticed_after <= max(0.4, LEASE_SECONDS / 3) + look_seconds
    await one._beat()
    assert now - claimed_at < LEASE_SECONDS
