"""Claim: from ready to running, under the limits of each key."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

import apsw

from rowlock.storage.records import Claimed, Glance
from rowlock.storage.sqlite import tally
from rowlock.storage.sqlite.rows import Row, json_text
from rowlock.storage.sqlite.sql import run, run_each, value

KEYS_AT_MOST = 256
"""How many limit keys one claim looks at; the next goes on from there."""
PROMOTED_AT_MOST = 10_000
"""How many due jobs one claim takes out of delayed."""
CHUNK = 16
"""How many waiting jobs of one key are read at a time."""

_BEFORE_ALL = -(2**63)


class Round:
    """Where the last claim on a queue stopped looking through the limit keys."""

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
        tally.write(connection, now, {(queue, ""): tally.Change(delayed=-len(moved))})
    if value(connection, "has_keyed", {"queue": queue}):
        return _claim_keyed(connection, now, queue, owner, limit, round)
    return _claim_unkeyed(connection, now, queue, owner, limit)


def glance(connection: apsw.Connection, now: int, queues: Sequence[str]) -> list[Glance]:
    rows = run(connection, "glance", {"queues": json_text(queues), "now": now})
    return [
        Glance(queue, bool(ready), None if due_at is None else max(0.0, (due_at - now) / 1e6))
        for queue, ready, due_at in rows
    ]


def _claim_unkeyed(connection: apsw.Connection, now: int, queue: str, owner: str, limit: int) -> list[Claimed]:
    """The busy path: the first jobs of the queue are one range of its index, so they move as one."""
    rows = run(connection, "first_unkeyed", (queue, limit))
    if rows:
        last = {"queue": queue, "priority": rows[-1][6], "seq": rows[-1][0]}
        run(connection, "start_unkeyed", {**last, "owner": owner, "now": now})
        run(connection, "remove_unkeyed", last)
    return [Claimed._make(row[1:]) for row in rows]


def _claim_keyed(
    connection: apsw.Connection, now: int, queue: str, owner: str, limit: int, round: Round
) -> list[Claimed]:
    """Merge the first jobs of every key that has room with those without a key."""
    keys = _keys_with_room(connection, now, queue, limit, round)
    lines = [_waiting(connection, queue, key, room) for key, room, _ in keys]
    chosen = list(islice(heapq.merge(_waiting(connection, queue, "", limit), *lines), limit))
    places = [(queue, key, priority, seq) for priority, seq, key in chosen]
    rows = run_each(connection, "read_one", places)
    run_each(connection, "start_one", [(owner, now, *place) for place in places])
    run_each(connection, "remove_one", places)
    _count_starts(connection, now, {key: window for key, _, window in keys if window is not None}, chosen)
    return [Claimed._make(row[1:]) for row in rows]


def _keys_with_room(
    connection: apsw.Connection, now: int, queue: str, limit: int, round: Round
) -> list[tuple[str, int, int | None]]:
    """(key, how many more may start, where its rate's window began), going round when there are too many keys."""
    asked = {"queue": queue, "now": now, "limit": limit}
    after = round.after(queue)
    keys = run(connection, "keys_with_room", {**asked, "after": after, "at_most": KEYS_AT_MOST})
    if after and len(keys) < KEYS_AT_MOST:
        left = KEYS_AT_MOST - len(keys)
        again = run(connection, "keys_with_room", {**asked, "after": "", "at_most": left})
        keys += [row for row in again if row[0] <= after]
    round.stop(queue, keys[-1][0] if len(keys) == KEYS_AT_MOST else "")
    return [(key, room, window) for key, room, window in keys if room > 0]


def _waiting(connection: apsw.Connection, queue: str, key: str, room: int) -> Iterator[tuple[int, int, str]]:
    """The first `room` jobs of a key as (priority, seq, key), read as far as they are asked for."""
    priority, seq = _BEFORE_ALL, _BEFORE_ALL
    while room > 0:
        wanted = min(CHUNK, room)
        chunk: list[Row] = run(connection, "waiting_of_key", (queue, key, priority, seq, wanted))
        for priority, seq, key in chunk:
            yield priority, seq, key
        if len(chunk) < wanted:
            return
        room -= wanted


def _count_starts(
    connection: apsw.Connection, now: int, windows: dict[str, int], chosen: list[tuple[int, int, str]]
) -> None:
    """Remember the starts of keys that have a rate, and forget those that no window can reach any more."""
    started = [key for _, _, key in chosen if key in windows]
    run_each(connection, "forget_starts", [(key, windows[key]) for key in set(started)])
    run_each(connection, "add_start", [(key, now) for key in started])
