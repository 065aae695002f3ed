"""The rules of idempotency locks: what the state of a lock means for a caller."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rowlock.control.locks import LockRequest, ended, renewed, taken
from rowlock.storage.reliability import LockAnswer, LockDecision, LockKey, LockRecord, LockStatus

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
STALE_SECONDS = 1_800
SAME, OTHER = "data", "other data"
ANN, BEN = "ann", "ben"

RUNNING = LockRecord("acme", "report", "all", LockStatus.RUNNING, SAME, 7, ANN, NOW - timedelta(seconds=1_799), None)
STALE = replace(RUNNING, locked_at=NOW - timedelta(seconds=1_800))
COMPLETED = replace(RUNNING, status=LockStatus.COMPLETED, ended_at=NOW - timedelta(minutes=1))
FAILED = replace(COMPLETED, status=LockStatus.FAILED)

P, T, RERUN, RETRY = LockDecision.PROCEED, LockDecision.TAKE_OVER, LockDecision.RERUN, LockDecision.RETRY
BUSY, DONE = LockDecision.ALREADY_RUNNING, LockDecision.ALREADY_COMPLETED

# The lock; then the decision for its holder and for another caller, each with the same data and with other data.
TABLE = {
    "absent": (None, (P, P), (P, P)),
    "running": (RUNNING, (T, T), (BUSY, BUSY)),
    "stale": (STALE, (T, T), (T, T)),
    "completed": (COMPLETED, (DONE, RERUN), (DONE, RERUN)),
    "failed": (FAILED, (RETRY, RETRY), (RETRY, RETRY)),
}
ROWS = [
    pytest.param(lock, holder, data, decision, id=f"{state}-{holder}-{data}")
    for state, (lock, *decisions) in TABLE.items()
    for holder, of_holder in zip((ANN, BEN), decisions, strict=True)
    for data, decision in zip((SAME, OTHER), of_holder, strict=True)
]


@pytest.mark.parametrize(("lock", "holder", "data", "decision"), ROWS)
def test_the_state_of_a_lock_decides(lock: LockRecord | None, holder: str, data: str, decision: LockDecision) -> None:
    after, answer = taken(lock, LockRequest(LockKey("acme", "report", "all"), data, holder, STALE_SECONDS), NOW)
    before = lock and lock.holder
    if decision.go:
        token = 8 if lock else int(NOW.timestamp() * 1_000)
        assert answer == LockAnswer(decision, token, before)
        assert after == LockRecord("acme", "report", "all", LockStatus.RUNNING, data, token, holder, NOW, None)
    else:
        assert answer == LockAnswer(decision, 7, before)
        assert after is lock


@pytest.mark.parametrize("lock", [None, COMPLETED, FAILED, replace(RUNNING, token=8)])
def test_only_the_holder_of_a_running_lock_renews_and_ends_it(lock: LockRecord | None) -> None:
    assert renewed(lock, 7, NOW) == (lock, False)
    assert ended(lock, 7, True, NOW) == (lock, False)


def test_a_holder_renews_its_lock() -> None:
    assert renewed(STALE, 7, NOW) == (replace(STALE, locked_at=NOW), True)


@pytest.mark.parametrize(("completed", "status"), [(True, LockStatus.COMPLETED), (False, LockStatus.FAILED)])
def test_a_holder_ends_its_lock(completed: bool, status: LockStatus) -> None:
    assert ended(STALE, 7, completed, NOW) == (replace(STALE, status=status, ended_at=NOW), True)
