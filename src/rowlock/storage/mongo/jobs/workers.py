"""Workers: their heartbeats and the leases that they hold."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import UpdateOne

from rowlock.storage.mongo.connection import BUSY_SECONDS, Document, Scope
from rowlock.storage.mongo.documents import JOBS, RUNNING
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import Held, Worker, WorkerId

WORKERS = "rowlock_workers"

INDEXES = (
    Index(WORKERS),
    Index(JOBS, "running", (("owner", 1), ("state", 1)), where={"state": RUNNING}),
)

_HELD = dict.fromkeys(("lease", "owner", "attempts", "maxAttempts", "deaths", "cancelRequested", "type", "queue"), 1)


class Working(Worked):
    """Records the heartbeats of workers and reads their leases."""

    async def beat(self, workers: Sequence[Worker]) -> list[Held]:
        async def work(scope: Scope) -> list[Held]:
            now = await scope.now()
            beats = [
                UpdateOne(
                    {"_id": worker.id},
                    {
                        "$set": {"name": worker.name, "queues": list(worker.queues), "seenAt": now, **_types(worker)},
                        "$setOnInsert": {"startedAt": now},
                    },
                    upsert=True,
                )
                for worker in sorted(workers, key=lambda worker: worker.id)
            ]
            await scope[WORKERS].bulk_write(beats)
            return await _held(scope, [worker.id for worker in workers])

        return await self._plain(work, BUSY_SECONDS) if workers else []

    async def shortest_lease(self, owners: Sequence[WorkerId]) -> float | None:
        mine = {"state": RUNNING, "owner": {"$in": list(owners)}}
        shortest: list[Document] = [{"$match": mine}, {"$group": {"_id": None, "ms": {"$min": "$visibilityMs"}}}]

        async def work(scope: Scope) -> float | None:
            found = await (await scope[JOBS].aggregate(shortest, hint="running")).to_list()
            return found[0]["ms"] / 1_000 if found else None

        return await self._plain(work, BUSY_SECONDS)

    async def retire(self, owner: WorkerId) -> None:
        await self._plain(lambda scope: scope[WORKERS].delete_one({"_id": owner}), BUSY_SECONDS)

    async def held(self, owner: WorkerId) -> list[Held]:
        return await self._plain(lambda scope: _held(scope, [owner]), BUSY_SECONDS)


def _types(worker: Worker) -> Document:
    return {"types": list(worker.types)} if worker.types else {}


async def _held(scope: Scope, owners: Sequence[WorkerId]) -> list[Held]:
    found = scope[JOBS].find({"state": RUNNING, "owner": {"$in": list(owners)}}, {**_HELD, "seq": 1})
    jobs = sorted(await found.to_list(), key=lambda job: job["seq"])
    return [
        Held(
            job["_id"],
            job["lease"],
            job["owner"],
            job["attempts"],
            job["maxAttempts"],
            job["deaths"],
            bool(job.get("cancelRequested")),
            job["type"],
            job["queue"],
        )
        for job in jobs
    ]
