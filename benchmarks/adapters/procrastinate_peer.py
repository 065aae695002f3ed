"""procrastinate: one claim and one finish per job, finished jobs and their events kept."""

# The package is installed in the peers' environment only.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate
import psycopg

from benchmarks.adapters.peer import DATABASE, FILLER, SETTINGS, Peer, chunks, main, record

_CONNECTIONS = SETTINGS.get("connections", 10)
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=DATABASE, min_size=_CONNECTIONS, max_size=_CONNECTIONS)
)


@app.task(queue="bench", name="noop")
async def noop(number: int) -> None:
    record(number)


class Procrastinate(Peer):
    async def setup(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def connect(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def enqueue(self, number: int) -> None:
        await noop.defer_async(number=number)

    async def enqueue_many(self, numbers: range) -> None:
        for part in chunks(numbers, 1_000):
            await noop.batch_defer_async(*({"number": number} for number in part))

    async def fill(self, waiting: int, finished: int) -> dict[str, Any]:
        async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
            await connection.execute("SET session_replication_role = replica")
            insert = """INSERT INTO procrastinate_jobs (queue_name, task_name, priority, status, args, attempts)
                SELECT 'bench', 'noop', %s, %s::procrastinate_job_status, jsonb_build_object('number', n), %s
                FROM generate_series(%s::bigint, %s::bigint) n"""
            await connection.execute(insert, (-10, "todo", 0, FILLER, FILLER + waiting - 1))
            await connection.execute(insert, (0, "succeeded", 1, FILLER + waiting, FILLER + waiting + finished - 1))
            await connection.execute(
                """INSERT INTO procrastinate_events (job_id, type)
                SELECT id, 'deferred' FROM procrastinate_jobs
                UNION ALL SELECT id, unnest(ARRAY['started', 'succeeded']::procrastinate_job_event_type[])
                FROM procrastinate_jobs WHERE status = 'succeeded'"""
            )
        return {"waiting": waiting, "finished": finished, "how": "lower priority; rows and events as it keeps them"}

    def worker(self, processes: int) -> None:
        async def work() -> None:
            async with app.open_async():
                await app.run_worker_async(queues=["bench"], concurrency=SETTINGS.get("concurrency", 1))

        asyncio.run(work())


if __name__ == "__main__":
    main(Procrastinate())
