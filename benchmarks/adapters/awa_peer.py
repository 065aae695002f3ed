"""awa-pg: a Rust engine under Python handlers, append-only storage, finished jobs kept as receipts."""

# The package is installed in the peers' environment only.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from benchmarks.adapters.peer import DATABASE, FILLER, SETTINGS, Peer, chunks, main, record


@dataclass
class Noop:
    number: int


class Awa(Peer):
    async def setup(self) -> None:
        await self.connect()
        await self.client.migrate()
        # As the first worker does on an empty store; before that, jobs go to the old tables.
        transaction = await self.client.transaction()
        await transaction.execute("SELECT awa.storage_auto_finalize_if_fresh('awa')")
        await transaction.commit()
        await self.close()

    async def connect(self) -> None:
        self.client = AsyncClient(DATABASE, max_connections=SETTINGS.get("connections", 10))

    async def close(self) -> None:
        await self.client.close()

    async def enqueue(self, number: int) -> None:
        await self.client.insert(Noop(number), queue="bench")

    async def enqueue_many(self, numbers: range, priority: int = 2) -> None:
        for part in chunks(numbers, 5_000):
            await self.client.enqueue_many_copy([Noop(number) for number in part], queue="bench", priority=priority)

    async def fill(self, waiting: int, finished: int) -> dict[str, Any]:
        await self.enqueue_many(range(FILLER, FILLER + waiting), priority=4)
        return {"waiting": waiting, "finished": 0, "how": "lowest priority; no finished jobs"}

    def worker(self, processes: int) -> None:
        async def work() -> None:
            await self.connect()

            @self.client.task(Noop, queue="bench")
            async def noop(job: Any) -> None:
                record(job.args.number)

            queue = {"name": "bench", "max_workers": 50} | SETTINGS.get("queue", {})
            await self.client.start([queue], **SETTINGS.get("start", {}))
            await asyncio.Event().wait()

        asyncio.run(work())


if __name__ == "__main__":
    main(Awa())
