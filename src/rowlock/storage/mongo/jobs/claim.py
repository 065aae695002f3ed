"""Claim: moves ready jobs to running, many at once, each for one owner.

look ─▶ the first jobs in order ─▶ mark each one that is still as it was seen ─▶ claimed
          ▲                                      │ others took some
          └──────────────────────────────────────┘ look again for the rest, a few times
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo.read_concern import ReadConcern

from rowlock.errors import StoreError
from rowlock.ids import uuid7
from rowlock.storage.mongo.connection import BUSY_SECONDS, Document, Scope
from rowlock.storage.mongo.dates import now_of
from rowlock.storage.mongo.documents import BY_ID, DELAYED, JOBS, READY, RUNNING, json_text
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.jobs.limits import Room, count_starts, rooms, turns
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import Claimed, Peek, Status, WorkerId

QUEUES = "rowlock_queues"

INDEXES = (
    Index(QUEUES),
    # The state is a key though it is always the same here: otherwise the index alone could not answer counts.
    Index(
        JOBS,
        "ready",
        (("queue", 1), ("state", 1), ("limitKey", 1), ("priority", 1), ("seq", 1)),
        where={"state": READY},
    ),
    Index(
        JOBS,
        "ready_keyed",
        (("queue", 1), ("state", 1), ("priority", 1), ("seq", 1)),
        where={"state": READY, "limitKey": {"$gt": ""}},
    ),
    Index(JOBS, "delayed", (("queue", 1), ("state", 1), ("availableAt", 1)), where={"state": DELAYED}),
)

PROMOTED_AT_MOST = 10_000
"""How many due jobs one claim makes ready."""
LOOKS_AT_MOST = 8
"""How often one claim looks for jobs if others are faster."""
STRETCHES_AT_MOST = 32.0
SKIPPED_AT_MOST = 8_000
BUSY_CONNECTIONS = 3
KEYS_AT_MOST = 256
"""How many limit keys with free capacity one claim takes jobs from."""

# A look only finds candidates: the conditional write decides, and jobs just taken by others must not be seen.
_LATEST = ReadConcern("local")
_KEYED = {"$gt": ""}
_NEVER = datetime.min.replace(tzinfo=UTC)
_ORDER = {"priority": 1, "seq": 1}
_FIELDS = dict.fromkeys(
    (
        "seq", "lease", "attempts", "maxAttempts", "deaths", "priority", "type", "companyId", "limitKey", "trace",
        "payload", "payloadText",
    ),
    1,
)  # fmt: skip


class Claiming(Worked):
    """Claims jobs for workers."""

    _crowds: dict[str, Crowd]  # by queue

    async def warm(self) -> None:
        ping = [self._plain(lambda scope: scope.db.command("ping"), BUSY_SECONDS) for _ in range(BUSY_CONNECTIONS)]
        await asyncio.gather(*ping)

    async def claim(self, queue: str, owner: WorkerId, limit: int) -> list[Claimed]:
        if limit <= 0:
            return []
        mine: list[Document] = []
        for _ in range(LOOKS_AT_MOST):
            try:
                more, again = await self._claim_once(queue, owner, limit - len(mine))
            except StoreError:
                if not mine:
                    raise
                break  # what is claimed already stays claimed
            mine += more
            if not again or 2 * len(mine) >= limit:
                break
        return [_claimed(job) for job in sorted(mine, key=_place)]

    async def peek(self, queues: Sequence[str]) -> list[Peek]:
        if not queues:
            return []
        now = now_of(self.clock)
        asked = [{"$documents": [{"queue": {"$literal": queue}} for queue in queues]}, *_peek_of(now)]

        async def work(scope: Scope) -> list[Document]:
            return await (await scope.db.aggregate(asked)).to_list()

        return [_peek(found) for found in await self._plain(work, BUSY_SECONDS)]

    async def _claim_once(self, queue: str, owner: WorkerId, limit: int) -> tuple[list[Document], bool]:
        """Claim some of the first jobs; return them, and whether to look again because others took the rest."""
        crowd = self._crowds.setdefault(queue, Crowd())
        skipped = crowd.skipped(limit)
        found = await self._plain(lambda scope: _look(scope, queue, limit, skipped), BUSY_SECONDS)
        if found.paused:
            return [], False
        if found.due:
            now = found.now
            await self._plain(lambda scope: _promote(scope, queue, now), BUSY_SECONDS)
        keyed = any(job["limitKey"] for job in found.first)
        if found.due or (skipped and (keyed or len(found.first) < limit)):
            found = await self._plain(lambda scope: _look(scope, queue, limit), BUSY_SECONDS)
            keyed = any(job["limitKey"] for job in found.first)
        if keyed:
            return await self._claim_keyed(queue, owner, limit, found)
        mine = await self._plain(lambda scope: _start(scope, owner, found.first, found.now), BUSY_SECONDS)
        lost = len(found.first) - len(mine)
        crowd.note(lost, len(found.first))
        return mine, lost > 0

    async def _claim_keyed(self, queue: str, owner: WorkerId, limit: int, look: Look) -> tuple[list[Document], bool]:
        """Like `_claim_once`, if jobs have limit keys: claims the limited ones in one transaction, with their turns."""
        chosen, found = await self._plain(lambda scope: _choose(scope, queue, limit, look), BUSY_SECONDS)
        limited = [job for job in chosen if _is_limited(job, found)]
        free = [job for job in chosen if not _is_limited(job, found)]
        mine = await self._plain(lambda scope: _start(scope, owner, free, look.now), BUSY_SECONDS)
        if limited:
            mine += await self._atomic(lambda scope: _start_limited(scope, owner, limited, look.now), BUSY_SECONDS)
        return mine, len(mine) < len(chosen)


class Crowd:
    """Estimates how many workers claim from one queue at the same moment, from the jobs that a claim loses to others.

    Claims that all take the first jobs conflict. So, while some are lost, each claim skips at random a few stretches as
    long as itself: together they still take the first jobs. A claim without competition takes the very first.
    """

    def __init__(self) -> None:
        self._stretches = 1.0

    def skipped(self, limit: int) -> int:
        stretches = min(int(self._stretches), max(1, SKIPPED_AT_MOST // limit))
        return random.randrange(stretches) * limit  # noqa: S311 - not a secret

    def note(self, lost: int, of: int) -> None:
        if 4 * lost > of:
            self._stretches = min(2 * self._stretches, STRETCHES_AT_MOST)
        elif not lost:
            self._stretches = max(1.0, 0.9 * self._stretches)


@dataclass(frozen=True, slots=True)
class Look:
    """What a claim reads first."""

    now: datetime  # valid if anything was found
    paused: bool
    due: bool  # whether a delayed job is due
    first: list[Document]  # the first ready jobs, in order


async def _look(scope: Scope, queue: str, limit: int, skipped: int = 0) -> Look:
    """Read everything in one round trip; an empty queue, the usual case of an idle worker, returns no documents."""
    now = now_of(scope.clock)
    due = {"queue": queue, "state": DELAYED, "$expr": {"$lte": ["$availableAt", now]}}
    pipeline: list[Document] = [
        *_first(queue, "", limit, skipped),
        {"$unionWith": {"coll": JOBS, "pipeline": _first(queue, _KEYED, limit)}},
        {"$unionWith": {"coll": JOBS, "pipeline": [{"$match": due}, {"$limit": 1}, _said("due")]}},
        {"$unionWith": {"coll": QUEUES, "pipeline": [{"$match": {"_id": queue}}, _said("paused")]}},
        {"$set": {"now": now}},
    ]
    jobs = scope[JOBS].with_options(read_concern=_LATEST)
    found = await (await jobs.aggregate(pipeline, batchSize=2 * limit + 2)).to_list()
    said = {word for one in found for word in ("due", "paused") if word in one}
    first = sorted((job for job in found if "seq" in job), key=_place)[:limit]
    return Look(found[0]["now"] if found else _NEVER, "paused" in said, "due" in said, first)


def _said(word: str) -> Document:
    return {"$project": {word: {"$literal": True}}}


def _first(queue: str, key: Any, limit: int, skipped: int = 0) -> list[Document]:
    match = {"queue": queue, "state": READY, "limitKey": key}
    skip = [{"$skip": skipped}] if skipped else []
    return [{"$match": match}, {"$sort": _ORDER}, *skip, {"$limit": limit}, {"$project": _FIELDS}]


async def _promote(scope: Scope, queue: str, now: datetime) -> None:
    """Make due jobs ready.

    By priority, not by time: a bounded promotion must not leave behind more urgent jobs than it takes.
    """
    due = {"queue": queue, "state": DELAYED, "availableAt": {"$lte": now}}
    found = scope[JOBS].find(due, {"_id": 1}).sort(list(_ORDER.items())).limit(PROMOTED_AT_MOST)
    ids = [job["_id"] async for job in found]
    guard = {"_id": {"$in": ids}, "state": DELAYED, "availableAt": {"$lte": now}}
    await scope[JOBS].update_many(guard, {"$set": {"state": READY}}, hint=BY_ID)


async def _start(scope: Scope, owner: WorkerId, jobs: Sequence[Document], now: datetime) -> list[Document]:
    """Claim each of these jobs that is still as it was seen; return the claimed ones."""
    if not jobs:
        return []
    claim = uuid7()
    change = {
        "$set": {
            "state": RUNNING,
            "status": Status.PROCESSING.value,
            "owner": owner,
            "claim": claim,
            "lockedAt": now,
            "startedAt": now,
            "updatedAt": now,
        },
        "$inc": {"lease": 1, "attempts": 1},
        "$unset": {"error": "", "queuedAt": ""},
    }
    alike: dict[tuple[int, int], list[str]] = defaultdict(list)  # nearly always one group: new jobs
    for job in jobs:
        alike[job["lease"], job["attempts"]].append(job["_id"])
    taken = 0
    for (lease, attempts), ids in alike.items():
        guard = _still(ids, lease, attempts)
        result = await scope[JOBS].update_many(guard, change, hint=BY_ID, session=scope.session)
        taken += result.modified_count
    if taken == len(jobs):
        return list(jobs)
    ids = [job["_id"] for job in jobs]
    ours = scope[JOBS].find({"_id": {"$in": ids}, "claim": claim}, {"_id": 1}, session=scope.session, hint=BY_ID)
    got = {job["_id"] async for job in ours}
    return [job for job in jobs if job["_id"] in got]


def _still(ids: list[str], lease: int, attempts: int) -> Document:
    """Return the filter for these jobs as they were seen."""
    return {"_id": {"$in": ids}, "state": READY, "lease": lease, "attempts": attempts}


async def _start_limited(scope: Scope, owner: WorkerId, jobs: Sequence[Document], now: datetime) -> list[Document]:
    """Like `_start`, under the locks of the limit keys, with their limits checked again."""
    keys = {job["limitKey"] for job in jobs}
    async with turns(scope, keys):
        found = await rooms(scope, keys, now, len(jobs))
        mine = await _start(scope, owner, _fitting(jobs, found, len(jobs)), now)
        started: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for job in mine:
            started[job["limitKey"]].append((job["_id"], job["lease"] + 1))
        await count_starts(scope, started, found, now)
        return mine


async def _choose(scope: Scope, queue: str, limit: int, look: Look) -> tuple[list[Document], dict[str, Room]]:
    """Return the first jobs that their limits allow: those at the head, or else the first of every key."""
    found = await rooms(scope, {job["limitKey"] for job in look.first if job["limitKey"]}, look.now, limit)
    chosen = _fitting(look.first, found, limit)
    if len(chosen) == len(look.first):
        return chosen, found
    heads = await _heads(scope, queue)
    found = await rooms(scope, heads, look.now, limit)
    with_room = [key for key in heads if found[key].jobs > 0][:KEYS_AT_MOST]
    jobs = scope[JOBS].with_options(read_concern=_LATEST)
    waiting = await (await jobs.aggregate(_first(queue, "", limit))).to_list()
    for keys, room in _grouped(with_room, found):
        waiting += await _of_keys(scope, queue, keys, room)
    return _fitting(sorted(waiting, key=_place), found, limit), found


def _fitting(jobs: Iterable[Document], found: dict[str, Room], limit: int) -> list[Document]:
    """Return the first of these jobs whose keys have room, at most `limit`."""
    left = {key: room.jobs for key, room in found.items()}
    chosen = []
    for job in jobs:
        if key := job["limitKey"]:
            if left.get(key, 0) <= 0:
                continue
            left[key] -= 1
        chosen.append(job)
        if len(chosen) == limit:
            break
    return chosen


def _grouped(keys: Sequence[str], found: dict[str, Room]) -> list[tuple[list[str], int]]:
    """Group the keys by their room, so that equal ones are read together."""
    alike: dict[int, list[str]] = defaultdict(list)
    for key in keys:
        alike[found[key].jobs].append(key)
    return [(keys, room) for room, keys in alike.items()]


async def _heads(scope: Scope, queue: str) -> list[str]:
    """Return the limit keys of ready jobs, ordered by their first jobs; reads key by key, not job by job."""
    found = (
        await scope[JOBS]
        .with_options(read_concern=_LATEST)
        .aggregate(
            [
                {"$match": {"queue": queue, "state": READY, "limitKey": _KEYED}},
                {"$sort": {"queue": 1, "state": 1, "limitKey": 1, **_ORDER}},
                {"$group": {"_id": "$limitKey", "priority": {"$first": "$priority"}, "seq": {"$first": "$seq"}}},
            ],
            hint="ready",
        )
    )
    return [head["_id"] for head in sorted(await found.to_list(), key=_place)]


async def _of_keys(scope: Scope, queue: str, keys: list[str], room: int) -> list[Document]:
    """Return the first `room` jobs of each of these keys."""
    first: list[Document] = [{"$match": {"$expr": {"$eq": ["$limitKey", "$$key"]}}}, *_first(queue, _KEYED, room)]
    found = await scope.db.with_options(read_concern=_LATEST).aggregate(
        [
            {"$documents": [{"key": {"$literal": key}} for key in keys]},
            {"$lookup": {"from": JOBS, "let": {"key": "$key"}, "pipeline": first, "as": "first"}},
            {"$unwind": "$first"},
            {"$replaceRoot": {"newRoot": "$first"}},
        ]
    )
    return await found.to_list()


def _is_limited(job: Document, found: dict[str, Room]) -> bool:
    return bool(job["limitKey"]) and found[job["limitKey"]].limited


def _place(job: Document) -> tuple[int, int]:
    return job["priority"], job["seq"]


def _claimed(job: Document) -> Claimed:
    return Claimed(
        job["_id"],
        job["lease"] + 1,
        job["attempts"] + 1,
        job["maxAttempts"],
        job["deaths"],
        job["priority"],
        job["type"],
        json_text(job, "payload") or "{}",
        job.get("companyId"),
        job["limitKey"] or None,
        job.get("trace"),
    )


def _peek_of(now: Any) -> list[Document]:
    """Return stages that tell for each queue: is it paused, is a job ready, when is the next delayed job due?"""

    def first(where: Document) -> list[Document]:
        match = {**where, "$expr": {"$eq": ["$queue", "$$queue"]}}
        sort = {"queue": 1, "availableAt": 1} if where["state"] == DELAYED else {"queue": 1, **_ORDER}
        return [{"$match": match}, {"$sort": sort}, {"$limit": 1}, {"$project": {"_id": 0, "availableAt": 1}}]

    let = {"queue": "$queue"}
    paused = [{"$match": {"$expr": {"$eq": ["$_id", "$$queue"]}}}]
    free, keyed = first({"state": READY, "limitKey": ""}), first({"state": READY, "limitKey": _KEYED})
    return [
        {"$lookup": {"from": QUEUES, "let": let, "pipeline": paused, "as": "paused"}},
        {"$lookup": {"from": JOBS, "let": let, "pipeline": free, "as": "ready"}},
        {"$lookup": {"from": JOBS, "let": let, "pipeline": keyed, "as": "keyed"}},
        {"$lookup": {"from": JOBS, "let": let, "pipeline": first({"state": DELAYED}), "as": "due"}},
        {"$set": {"now": now}},
    ]


def _peek(found: Document) -> Peek:
    if found["paused"]:
        return Peek(found["queue"], False, None)
    due_in = None
    if found["due"]:
        due_in = max(0.0, (found["due"][0]["availableAt"] - found["now"]).total_seconds())
    return Peek(found["queue"], bool(found["ready"] or found["keyed"]) or due_in == 0.0, due_in)
