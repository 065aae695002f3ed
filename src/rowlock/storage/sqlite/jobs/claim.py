"""Claim: move jobs from ready to running, within the limits of their keys."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import apsw

from rowlock.storage.records import Claimed, Peek
from rowlock.storage.sqlite.jobs import counters
from rowlock.storage.sqlite.rows import Row, json_text
from rowlock.storage.sqlite.sql import run, run_each, value

KEYS_AT_MOST = 256
"""Limit keys that one claim checks, if they have enough room."""
LOOKED_AT_MOST = 4_096
"""Limit keys that one claim checks at most, if they have too little room; the next claim continues from there."""
PROMOTED_AT_MOST = 10_000
"""Due jobs that one claim moves from delayed to ready."""
CHUNK = 16
"""Waiting jobs of one key that are read at a time."""

_BEFORE_ALL = -(2**63)


class Round:
    """Remembers, per queue, the limit key at which the last claim stopped."""

    def __init__(self) -> None:
        self._after: dict[str, str] = {}

    def after(self, queue: str) -> str:
        return self._after.get(queue, "")

    def stop(self, queue: str, key: str) -> None:
        self._after[queue] = key


def claim(connection: apsw.Connection, now: int, queue: str, owner: str, limit: int, round: Round) -> list[Claimed]:
    ((paused, due),) = run(connection, "look", {"queue": queue, "now": now})
    if paused or limit <= 0:
        return []
    if due:
        run(connection, "promote", {"queue": queue, "now": now, "at_most": PROMOTED_AT_MOST})
        moved = run(connection, "remove_promoted", {"queue": queue, "now": now})
        counters.write(connection, now, {(queue, ""): counters.Change(delayed=-len(moved))})
    if value(connection, "has_keyed", {"queue": queue}):
        return _claim_keyed(connection, now, queue, owner, limit, round)
    return _claim_unkeyed(connection, now, queue, owner, limit)


def peek(connection: apsw.Connection, now: int, queues: Sequence[str]) -> list[Peek]:
    rows = run(connection, "peek", {"queues": json_text(queues), "now": now})
    return [
        Peek(queue, bool(ready), None if due_at is None else max(0.0, (due_at - now) / 1e6))
        for queue, ready, due_at in rows
    ]


def _claim_unkeyed(connection: apsw.Connection, now: int, queue: str, owner: str, limit: int) -> list[Claimed]:
    """The hot path: the first jobs without a limit key are one range of the queue's index, so they move together."""
    rows = run(connection, "first_unkeyed", (queue, limit))
    if rows:
        last = {"queue": queue, "priority": rows[-1][6], "seq": rows[-1][0]}
        run(connection, "start_unkeyed", {**last, "owner": owner, "now": now})
        run(connection, "remove_unkeyed", last)
    return [Claimed._make(row[1:]) for row in rows]


def _claim_keyed(
    connection: apsw.Connection, now: int, queue: str, owner: str, limit: int, round: Round
) -> list[Claimed]:
    """Claim the first jobs among those without a key and those of every key that has room."""
    keys = _keys_with_room(connection, now, queue, limit, round)
    lines = [_waiting(connection, queue, key, room) for key, room, _ in keys]
    chosen = list(islice(heapq.merge(_waiting(connection, queue, "", limit), *lines), limit))
    places = [(queue, key, priority, seq) for priority, seq, key in chosen]
    rows = run_each(connection, "read_one", places)
    run_each(connection, "start_one", [(owner, now, *place) for place in places])
    run_each(connection, "remove_one", places)
    _count_starts(connection, now, {key: window for key, _, window in keys if window is not None}, rows)
    return [Claimed._make(row[1:]) for row in rows]


def _keys_with_room(
    connection: apsw.Connection, now: int, queue: str, limit: int, round: Round
) -> list[tuple[str, int, int | None]]:
    """Return (key, jobs that may start, start of its rate window or None) for each key that has room."""
    asked = {"queue": queue, "now": now, "limit": limit, "at_most": KEYS_AT_MOST}
    found: list[tuple[str, int, int | None]] = []
    last, left = "", limit
    for looked_at, (key, room, window) in enumerate(_all_keys(connection, asked, round.after(queue))):
        if looked_at >= KEYS_AT_MOST and (left <= 0 or looked_at >= LOOKED_AT_MOST):
            round.stop(queue, last)
            break
        last = key
        if room > 0:
            found.append((key, room, window))
            left -= room
    else:
        round.stop(queue, "")
    return found


def _all_keys(connection: apsw.Connection, asked: dict[str, Any], start: str) -> Iterator[Row]:
    """Yield each limit key with waiting jobs once: in order those after `start`, then those from the first up to it."""
    for first, end in ((start, None), ("", start)) if start else (("", None),):
        after: str | None = first
        while after is not None:
            rows: list[Row] = run(connection, "keys_with_room", {**asked, "after": after})
            after = rows[-1][0] if len(rows) == asked["at_most"] else None
            for row in rows:
                if end is not None and row[0] > end:
                    return
                yield row


def _waiting(connection: apsw.Connection, queue: str, key: str, room: int) -> Iterator[tuple[int, int, str]]:
    """Yield the first `room` jobs of a key as (priority, seq, key); they are read lazily, in chunks."""
    priority, seq = _BEFORE_ALL, _BEFORE_ALL
    while room > 0:
        wanted = min(CHUNK, room)
        chunk: list[Row] = run(connection, "waiting_of_key", (queue, key, priority, seq, wanted))
        for priority, seq, key in chunk:
            yield priority, seq, key
        if len(chunk) < wanted:
            return
        room -= wanted


def _count_starts(connection: apsw.Connection, now: int, windows: dict[str, int], rows: Sequence[Row]) -> None:
    """Record the starts of jobs whose key has a rate, and delete starts that are older than its window."""
    started = [(row[10], now, row[0], row[2]) for row in rows if row[10] in windows]
    run_each(connection, "forget_starts", [(key, windows[key]) for key in {start[0] for start in started}])
    run_each(connection, "add_start", started)
