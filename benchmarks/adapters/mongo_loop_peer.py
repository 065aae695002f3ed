"""A simple queue on MongoDB as people write it: `find_one_and_update` takes one job, an update marks it as done.

It has Rowlock's original job document, Rowlock's write concern, and the index that it needs.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from pymongo import MongoClient, ReturnDocument, WriteConcern
from pymongo.collection import Collection

from benchmarks.adapters.peer import DATABASE, FILLER, Peer, chunks, main, record

POLL_SECONDS = 0.05


class MongoLoop(Peer):
    def __init__(self) -> None:
        self._client: MongoClient[dict[str, Any]] = MongoClient(DATABASE)
        database = self._client.get_default_database(write_concern=WriteConcern(w="majority", j=True))
        self.jobs: Collection[dict[str, Any]] = database["jobs"]

    def setup(self) -> None:
        self.jobs.create_index([("status", 1), ("createdAt", 1)])
        self.close()

    def close(self) -> None:
        self._client.close()

    def enqueue(self, number: int) -> None:
        self.jobs.insert_one(_job(number))

    def enqueue_many(self, numbers: range) -> None:
        for part in chunks(numbers, 1_000):
            self.jobs.insert_many(list(map(_job, part)))

    def fill(self, waiting: int, finished: int) -> dict[str, Any]:
        late = datetime(9999, 1, 1, tzinfo=UTC)
        for part in chunks(range(FILLER, FILLER + finished), 10_000):
            self.jobs.insert_many([{**_job(number), "status": "done"} for number in part])
        for part in chunks(range(FILLER + finished, FILLER + finished + waiting), 10_000):
            self.jobs.insert_many([{**_job(number), "createdAt": late} for number in part])
        return {"waiting": waiting, "finished": finished, "how": "created later than all others"}

    def worker(self, processes: int) -> None:
        while True:
            job = self.jobs.find_one_and_update(
                {"status": "queued"},
                {"$set": {"status": "processing", "startedAt": datetime.now(UTC)}, "$inc": {"attempts": 1}},
                sort=[("createdAt", 1)],
                return_document=ReturnDocument.AFTER,
            )
            if job is None:
                time.sleep(POLL_SECONDS)
                continue
            record(job["payload"]["number"])
            self.jobs.update_one({"_id": job["_id"]}, {"$set": {"status": "done", "finishedAt": datetime.now(UTC)}})


def _job(number: int) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "type": "noop",
        "status": "queued",
        "payload": {"number": number},
        "attempts": 0,
        "maxAttempts": 3,
        "createdAt": now,
    }


if __name__ == "__main__":
    main(MongoLoop())
