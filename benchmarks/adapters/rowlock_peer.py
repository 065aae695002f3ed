"""Rowlock, through its public names and command line; default settings except those given."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import apsw

from benchmarks.adapters import rowlock_pages
from benchmarks.adapters.peer import DATABASE, FILLER, SETTINGS, Peer, chunks, main, record
from benchmarks.adapters.rowlock_http import measure
from rowlock import Job, Rowlock
from rowlock.management import ManagementService

_ON_POSTGRESQL = DATABASE.startswith("postgresql:")
_ON_MONGODB = DATABASE.startswith("mongodb:")
_URL = DATABASE if _ON_POSTGRESQL or _ON_MONGODB else f"sqlite:///{DATABASE}"
_TYPE = "noop.batch" if SETTINGS.get("batch") else "noop"
_LATER = 200
_NAME = "benchmarks.adapters.rowlock_peer:app"

app = Rowlock(_URL)


@app.job("noop")
async def noop(job: Job, number: int) -> None:
    record(number)


@app.job("noop.batch", batch=1000)
async def noop_batch(jobs: list[Job]) -> None:
    for job in jobs:
        record(job.payload["number"])


class RowlockPeer(Peer):
    async def setup(self) -> None:
        await app.migrate()
        await app.close()

    async def close(self) -> None:
        await app.close()

    async def enqueue(self, number: int) -> None:
        await app.enqueue(_TYPE, {"number": number})

    async def enqueue_many(self, numbers: range) -> None:
        await app.enqueue_many((_TYPE, {"number": number}) for number in numbers)

    async def fill(self, waiting: int, finished: int) -> dict[str, Any]:
        await self._enqueue_later(range(FILLER, FILLER + finished))
        await _finish()
        await self._enqueue_later(range(FILLER + finished, FILLER + finished + waiting))
        return {"waiting": waiting, "finished": finished, "how": "lower priority; finished ones as it keeps them"}

    async def _enqueue_later(self, numbers: range) -> None:
        for part in chunks(numbers, 10_000):
            await app.enqueue_many([(_TYPE, {"number": number}) for number in part], priority=_LATER)

    async def _full(self, jobs: int, failures: int) -> None:
        """Finish half of the jobs; the other half waits."""
        await self._enqueue_later(range(FILLER, FILLER + jobs // 2))
        await _finish()
        await self._enqueue_later(range(FILLER + jobs // 2, FILLER + jobs))
        await _fail(failures)
        while await app.store.compact(100_000):
            continue

    async def pages(self, jobs: int, asked: int) -> dict[str, Any]:
        await self._full(jobs, jobs)
        return await rowlock_pages.measure(app, _NAME, _URL, asked)

    async def open_pages(self, pages: int, seconds: int) -> dict[str, Any]:
        return await rowlock_pages.stay_open(app, _NAME, _URL, pages, seconds)

    async def health(self, jobs: int, failures: int, asked: int) -> list[float]:
        await self._full(jobs, failures)
        took = []
        for _ in range(asked):
            started = time.perf_counter()
            await ManagementService(app).queue_health("default")
            took.append((time.perf_counter() - started) * 1_000)
        return took

    async def http(self, requests: int, connections: int) -> dict[str, Any]:
        return await measure(app, _NAME, _URL, requests, connections)

    def worker(self, processes: int) -> None:
        os.environ.update(SETTINGS.get("environment", {}))
        command = ["-m", "rowlock", "worker", "--app", _NAME, "--database", _URL]
        os.execv(sys.executable, [sys.executable, *command, "--processes", str(processes)])


async def _finish() -> None:
    """Finish all waiting jobs, by statements on the stores' tables."""
    if _ON_MONGODB:
        _finish_on_mongodb()
    else:
        await (_finish_on_postgresql() if _ON_POSTGRESQL else _finish_on_sqlite())


def _finish_on_mongodb() -> None:
    from pymongo import MongoClient

    with MongoClient(DATABASE) as client:
        database = client.get_default_database()
        over = {"state": "finished", "status": "succeeded", "lease": 1, "attempts": 1}
        times = dict.fromkeys(("startedAt", "finishedAt", "updatedAt"), "$$NOW")
        ended = database["jobs"].update_many({"state": "ready"}, [{"$set": {**over, **times}}])
        now = client.admin.command("hello")["localTime"]
        number = ended.modified_count
        note = {"at": now, "queue": "default", "type": _TYPE, "alive": -number, "succeeded": number}
        database["rowlock_counter_deltas"].insert_one(note)


async def _finish_on_postgresql() -> None:
    import asyncpg

    connection = await asyncpg.connect(DATABASE)
    await connection.execute(
        """WITH gone AS (DELETE FROM rowlock.ready RETURNING job_id)
        INSERT INTO rowlock.finished (job_id, started_at, finished_at, lease, attempt, deaths, status)
        SELECT job_id, now(), now(), 1, 1, 0, 1 FROM gone"""
    )
    await connection.execute(
        """INSERT INTO rowlock.counter_deltas (at, queue, type, alive, succeeded)
        SELECT now(), 'default', $1, -count(*), count(*) FROM rowlock.finished""",
        _TYPE,
    )
    await connection.close()


async def _finish_on_sqlite() -> None:
    with contextlib.closing(apsw.Connection(DATABASE)) as connection, connection:
        connection.execute(
            """INSERT INTO finished (seq, outcome, lease, attempt, deaths, started_at, finished_at)
            SELECT seq, 1, 1, 1, 0, available_at, available_at FROM ready"""
        )
        connection.execute("DELETE FROM ready")
        connection.execute("UPDATE totals SET succeeded = alive, alive = 0")


async def _fail(count: int) -> None:
    """Write failures of the last day, by statements on the stores' tables."""
    if _ON_MONGODB:
        _fail_on_mongodb(count)
    else:
        await (_fail_on_postgresql(count) if _ON_POSTGRESQL else _fail_on_sqlite(count))


def _fail_on_mongodb(count: int) -> None:
    from pymongo import MongoClient

    with MongoClient(DATABASE) as client:
        database = client.get_default_database()
        now = client.admin.command("hello")["localTime"]
        same = {"jobName": "noop", "queueName": "default", "payload": "{}", "attempts": 1, "maxAttempts": 5}
        for part in chunks(range(count), 10_000):
            failures = [
                {
                    "_id": str(uuid4()),
                    "jobId": str(uuid4()),
                    **same,
                    "isFinalAttempt": number % 5 == 0,
                    "failedReason": "no",
                    "firstFailedAt": now - timedelta(milliseconds=86 * number),
                }
                for number in part
            ]
            database["rowlock_failures"].insert_many(failures)
        minute = now.replace(second=0, microsecond=0)
        minutes = [minute - timedelta(minutes=number) for number in range(1440)]
        told = {"queue": "default", "type": "noop", "failures": count // 1440}
        database["rowlock_minutes"].insert_many([{"at": at, **told} for at in minutes])


async def _fail_on_postgresql(count: int) -> None:
    import asyncpg

    connection = await asyncpg.connect(DATABASE)
    await connection.execute(
        """INSERT INTO rowlock.job_failures (id, job_id, job_name, queue_name, payload, attempts, max_attempts,
            is_final_attempt, failed_reason, first_failed_at)
        SELECT gen_random_uuid(), gen_random_uuid(), 'noop', 'default', '{}', 1, 5, n % 5 = 0, 'no',
               now() - n * interval '86 milliseconds' FROM generate_series(1, $1::integer) n""",
        count,
    )
    await connection.execute(
        """INSERT INTO rowlock.minutes
        SELECT date_trunc('minute', now()) - n * interval '1 minute', 'default', 'noop', 0, 0, 0, $1::integer, 0, 0, 0
        FROM generate_series(0, 1439) n""",
        count // 1440,
    )
    await connection.close()


async def _fail_on_sqlite(count: int) -> None:
    with contextlib.closing(apsw.Connection(DATABASE)) as connection, connection:
        connection.execute(
            """WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO job_failures (id, job_id, job_name, queue_name, payload, attempts, max_attempts,
                is_final_attempt, failed_reason, first_failed_at)
            SELECT 'f' || i, 'j' || i, 'noop', 'default', '{}', 1, 5, i % 5 = 0, 'no',
                   unixepoch() * 1000000 - i * 86000 FROM n""",
            (count,),
        )
        connection.execute(
            """WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1439)
            INSERT INTO minutes SELECT unixepoch() / 60 - i, 'default', 'noop', 0, 0, 0, ?, 0, 0, 0.0 FROM n""",
            (count // 1440,),
        )


if __name__ == "__main__":
    SETTINGS["uvloop"] = True
    main(RowlockPeer())
