"""Rowlock: through its public names and its own command line, default settings unless the settings say otherwise."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from typing import Any

from benchmarks.adapters.peer import DATABASE, FILLER, SETTINGS, Peer, chunks, main, record
from rowlock import Job, Rowlock

_ON_POSTGRESQL = DATABASE.startswith("postgresql:")
_URL = DATABASE if _ON_POSTGRESQL else f"sqlite:///{DATABASE}"
_TYPE = "noop.batch" if SETTINGS.get("batch") else "noop"
_LATER = 200

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
        await (_finish_on_postgresql() if _ON_POSTGRESQL else _finish_on_sqlite())
        await self._enqueue_later(range(FILLER + finished, FILLER + finished + waiting))
        return {"waiting": waiting, "finished": finished, "how": "lower priority; finished ones as it keeps them"}

    async def _enqueue_later(self, numbers: range) -> None:
        for part in chunks(numbers, 10_000):
            await app.enqueue_many([(_TYPE, {"number": number}) for number in part], priority=_LATER)

    def worker(self, processes: int) -> None:
        os.environ.update(SETTINGS.get("environment", {}))
        command = ["-m", "rowlock", "worker", "--app", "benchmarks.adapters.rowlock_peer:app", "--database", _URL]
        os.execv(sys.executable, [sys.executable, *command, "--processes", str(processes)])


async def _finish_on_postgresql() -> None:
    import asyncpg

    connection = await asyncpg.connect(DATABASE)
    await connection.execute(
        """WITH gone AS (DELETE FROM rowlock.ready RETURNING job_id)
        INSERT INTO rowlock.finished (job_id, started_at, finished_at, lease, attempt, deaths, status)
        SELECT job_id, now(), now(), 1, 1, 0, 1 FROM gone"""
    )
    await connection.close()


async def _finish_on_sqlite() -> None:
    with contextlib.closing(sqlite3.connect(DATABASE)) as connection, connection:
        connection.execute(
            """INSERT INTO finished (seq, outcome, lease, attempt, deaths, started_at, finished_at)
            SELECT seq, 1, 1, 1, 0, available_at, available_at FROM ready"""
        )
        connection.execute("DELETE FROM ready")


if __name__ == "__main__":
    SETTINGS["uvloop"] = True
    main(RowlockPeer())
