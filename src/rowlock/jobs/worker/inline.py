"""The inline worker has no supervisor: it runs handlers and renews its own leases in the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rowlock.jobs.engine import Engine
from rowlock.jobs.worker.maintenance import Maintenance
from rowlock.jobs.worker.worker import WorkerProcess
from rowlock.observe import logs


async def work_here(engine: Engine, queues: Sequence[str], *, drain: bool, stop: asyncio.Event | None) -> None:
    """Run the jobs of these queues (default: all) until `stop` is set or, with `drain`, nothing is ready."""
    await engine.store.check_schema()
    log = logs.get()
    worker = WorkerProcess(engine, queues or engine.queues(), log)
    maintenance = Maintenance(
        engine,
        lambda: [worker.record],
        worker.note_held,
        lambda: [worker.record.id] if worker.running else [],
        log,
    )
    if drain:
        await maintenance.rescue()
    chores = asyncio.create_task(maintenance.run())
    chores.add_done_callback(lambda _: worker.stop())
    waiting = asyncio.create_task(stop.wait()) if stop is not None else None
    if waiting is not None:
        waiting.add_done_callback(lambda _: worker.stop())
    try:
        await worker.run(drain=drain)
        if chores.done():
            chores.result()  # raises an internal fault
    finally:
        for task in (chores, waiting):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in (chores, waiting) if task is not None), return_exceptions=True)
