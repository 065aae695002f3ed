"""pgqueuer: batched claim and finish, finished jobs kept as rows of a log table."""

# The package is installed in the peers' environment only.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from benchmarks.adapters.peer import DATABASE, FILLER, SETTINGS, Peer, chunks, main, record


class PgQueuerPeer(Peer):
    async def setup(self) -> None:
        await self.connect()
        await self.queries.install()
        await self.close()

    async def connect(self) -> None:
        self.pool = await asyncpg.create_pool(DATABASE, min_size=10, max_size=10)
        self.queries = Queries(AsyncpgPoolDriver(self.pool))

    async def close(self) -> None:
        await self.pool.close()

    async def enqueue(self, number: int) -> None:
        await self.queries.enqueue("noop", b"%d" % number, 0)

    async def enqueue_many(self, numbers: range) -> None:
        for part in chunks(numbers, 5_000):
            count = len(part)
            await self.queries.enqueue(["noop"] * count, [b"%d" % number for number in part], [0] * count)

    async def fill(self, waiting: int, finished: int) -> dict[str, Any]:
        async with self.pool.acquire() as connection:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(
                """INSERT INTO pgqueuer (priority, status, entrypoint, payload)
                SELECT -10, 'queued', 'noop', convert_to(n::text, 'utf8')
                FROM generate_series($1::bigint, $2::bigint) n""",
                FILLER,
                FILLER + waiting - 1,
            )
            await connection.execute(
                """INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint, aggregated)
                SELECT n, status::pgqueuer_status, 0, 'noop', true
                FROM generate_series($1::bigint, $2::bigint) n,
                    unnest(ARRAY['queued', 'picked', 'successful']) status""",
                FILLER,
                FILLER + finished - 1,
            )
        return {"waiting": waiting, "finished": finished, "how": "lower priority; three log rows per finished job"}

    def worker(self, processes: int) -> None:
        async def work() -> None:
            queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(DATABASE)))

            @queuer.entrypoint("noop")
            async def noop(job: Any) -> None:
                record(int(job.payload))

            await queuer.run(batch_size=SETTINGS.get("batch", 10))

        asyncio.run(work())


if __name__ == "__main__":
    main(PgQueuerPeer())
