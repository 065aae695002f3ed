"""The job that a handler receives: payload, cancellation, progress and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.jobs.payload import loads
from rowlock.jobs.transaction import JobTransaction
from rowlock.storage.records import Claimed

if TYPE_CHECKING:
    from rowlock.jobs.worker.context import Context


class Job:
    """One attempt at one job."""

    __slots__ = ("_claimed", "_context", "_payload", "_settled", "_stop_reason", "_stopped")

    def __init__(self, claimed: Claimed, context: Context) -> None:
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
