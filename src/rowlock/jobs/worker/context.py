"""What the consumers of a worker process share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from rowlock.jobs.engine import Engine
from rowlock.storage.records import WorkerId

if TYPE_CHECKING:
    from rowlock.jobs.worker.quarantine import Quarantine
    from rowlock.jobs.worker.settler import Settler
    from rowlock.jobs.worker.started_jobs import Slots


class WorkerContext:
    """The parts of one worker process that its consumers and runners use."""

    def __init__(
        self,
        engine: Engine,
        owner: WorkerId,
        log: Any,
        *,
        settler: Settler,
        slots: Slots,
        threads: Executor,
        quarantine: Quarantine,
        on_rest: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.owner = owner
        self.log = log
        self.settler = settler
        self.slots = slots
        self.threads = threads
        self.quarantine = quarantine
        self.on_rest = on_rest  # called when a consumer has nothing to do
        self.types = engine.types
        self.lock_context = engine.lock_context(log)
