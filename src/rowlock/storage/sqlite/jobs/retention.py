"""Retention: remove finished jobs, oldest first, a bounded batch at a time."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from rowlock.storage.records import KeepPolicy, Outcome, Status
from rowlock.storage.sqlite.jobs import operate
from rowlock.storage.sqlite.sql import run

_OUTCOMES = {Status.SUCCEEDED: Outcome.SUCCEEDED, Status.FAILED: Outcome.FAILED, Status.CANCELLED: Outcome.CANCELLED}
_DAY_MICROS = 24 * 3600 * 1_000_000
_LAST_SEQ = 2**63 - 1


def prune(
    connection: apsw.Connection, now: int, policies: Mapping[Status, KeepPolicy], limit: int
) -> dict[Status, int]:
    """Remove jobs beyond each policy, and expired keys, pauses, starts and workers; return the job counts by status."""
    pruned = {}
    for status, policy in policies.items():
        if status in _OUTCOMES:
            pruned[status] = _prune(connection, now, int(_OUTCOMES[status]), policy, limit)
    run(connection, "forget_expired_keys", {"now": now, "limit": limit})
    run(connection, "forget_key_pauses", {"now": now})
    run(connection, "forget_old_starts", {"now": now})
    run(connection, "forget_workers", {"now": now})
    return pruned


def _prune(connection: apsw.Connection, now: int, outcome: int, policy: KeepPolicy, limit: int) -> int:
    # Age and count each remove a prefix of the same order, so the longer prefix goes.
    bounds: list[tuple[int, int]] = []
    if policy.days is not None:
        bounds.append((now - round(policy.days * _DAY_MICROS) - 1, _LAST_SEQ))
    if policy.count is not None:
        bounds += run(connection, "newest_kept_out", {"outcome": outcome, "count": policy.count})
    if not bounds:
        return 0
    finished_at, seq = max(bounds)
    asked = {"outcome": outcome, "finished_at": finished_at, "seq": seq, "limit": limit}
    seqs = [seq for (seq,) in run(connection, "oldest_finished", asked)]
    operate.prune(connection, now, seqs, outcome)
    return len(seqs)
