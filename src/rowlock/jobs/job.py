"""The job that a handler receives: payload, cancellation, progress and transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rowlock.jobs.payload import loads
from rowlock.jobs.transaction import JobTransaction
from rowlock.storage.records import Claimed, JobId, Progress, WorkerId

if TYPE_CHECKING:
    from rowlock.jobs.engine import Engine


class JobContext:
    """What the jobs of one queue in one process share."""

    def __init__(self, engine: Engine, owner: WorkerId, queue: str, *, leased: bool = True) -> None:
        self.engine = engine
        self.store = engine.store
        self.owner = owner
        self.queue = queue
        self.leased = leased  # False in resilient mode: there is no job in the store to settle
        self.loop = asyncio.get_running_loop()
        self.result_bytes_max = engine.settings.payload_bytes_max
        self._reports: dict[JobId, Progress] = {}

    def report(self, claimed: Claimed, percent: int, message: str | None) -> None:
        """Keep a progress report, in place of an earlier one of the same job, until the worker writes it."""
        self._reports[claimed.id] = Progress(claimed.id, claimed.lease, percent, message)

    def take_reports(self) -> list[Progress]:
        """Return the progress reports since the last call."""
        if not self._reports:
            return []
        reports = list(self._reports.values())
        self._reports.clear()
        return reports


class Job:
    """One attempt at one job."""

    __slots__ = ("_claimed", "_context", "_payload", "_result", "_settled", "_stop_reason", "_stopped")

    _result: str | None

    def __init__(self, claimed: Claimed, context: JobContext) -> None:
        self._claimed = claimed
        self._context = context
        self._payload: dict[str, Any] | None = None
        self._settled = False
        self._stop_reason: BaseException | None = None
        self._stopped = False

    @property
    def id(self) -> str:
        return self._claimed.id

    @property
    def type(self) -> str:
        return self._claimed.type

    @property
    def queue(self) -> str:
        return self._context.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self._claimed.attempt

    @property
    def max_attempts(self) -> int:
        return self._claimed.max_attempts

    @property
    def lease(self) -> int:
        """The fencing token of this attempt: higher than that of any earlier one."""
        return self._claimed.lease

    @property
    def company_id(self) -> str | None:
        return self._claimed.company_id

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of this job: pass it to other systems, which may see several."""
        return self._claimed.id

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as enqueued."""
        if self._payload is None:
            self._payload = loads(self._claimed.payload)
        return self._payload

    def _take_over(self, payload: str) -> None:
        """Use the payload of a newer enqueue whose receipt named this job."""
        self._claimed = self._claimed._replace(payload=payload)
        self._payload = None

    def _stop(self, reason: BaseException) -> None:
        """Have `cancelled` return True from now on."""
        self._stop_reason = reason

    def _complete(self, result: str | None) -> None:
        """Note that a transaction has settled this job; `result` is JSON text."""
        self._settled = True
        self._result = result

    @property
    def cancelled(self) -> bool:
        """True if this attempt should stop: cancelled, past its deadline, lease lost, or shutting down.

        A handler that reads True and then returns counts as stopped, not as succeeded.
        """
        if self._stop_reason is None:
            return False
        self._stopped = True
        return True

    def progress(self, percent: float, message: str | None = None) -> None:
        """Report progress, 0 to 100 %; written soon, the latest report wins. Callable from any thread."""
        if not 0 <= percent <= 100:
            raise ValueError(f"progress must be 0 to 100, not {percent}")
        self._context.report(self._claimed, int(percent), message)

    def transaction(self) -> JobTransaction:
        """Return a transaction on the store's database that commits your writes together with this job's completion.

        Use `async with job.transaction() as tx:` in async handlers, `with` in plain ones. If the lease was lost,
        nothing commits and LeaseLost is raised. The job's result is `tx.result`; the handler's return value is not
        used. A store without transactions (MongoDB without a replica set) raises NoTransactions, and the job fails.
        """
        return JobTransaction(self, self._context)

    def __repr__(self) -> str:
        return f"<Job {self.type} {self.id} attempt {self.attempt}/{self.max_attempts}>"
