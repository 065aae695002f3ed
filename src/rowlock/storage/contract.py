"""The store contract: every verb that a store implements, with its guarantee.

    enqueue ─▶ ready ─claim─▶ running ─settle─▶ finished ─prune─▶ gone
                 ▲  ▲            │ │                │
       due ──────┘  └──rescue────┘ └─settle(retry)  └─retry (operator)
     delayed ◀─────────────────────┘

Every verb is atomic and reads the time from `clock`: the store's own clock, or a fake clock in tests. Every change to a
running job names the job's id, lease and owner; if they no longer match, the verb changes nothing and its return value
says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

from rowlock.clock import Clock
from rowlock.storage.access import Changes
from rowlock.storage.call_verbs import CallVerbs
from rowlock.storage.import_verbs import ImportTransaction, ImportVerbs
from rowlock.storage.imports import ImportStep, TransactionBounds
from rowlock.storage.kinds import Records
from rowlock.storage.overview_verbs import OverviewVerbs
from rowlock.storage.records import (
    Attempt,
    CancelResult,
    Claimed,
    Finding,
    Held,
    JobFilter,
    JobId,
    JobRecord,
    KeepPolicy,
    Limit,
    Newest,
    NewJob,
    Page,
    Peek,
    Progress,
    QueueRecord,
    Receipt,
    Rescued,
    Retried,
    SchemaState,
    Settlement,
    Status,
    Worker,
    WorkerId,
    WorkerRecord,
)
from rowlock.storage.reliability import (
    Activity,
    DeadLetters,
    FailureFilter,
    FailureId,
    FailurePage,
    FailureRecord,
    Measure,
    Total,
)

T = TypeVar("T")

Wake = Callable[[str, str], None]
"""Called with ("queue", name) when a queue may have work ("*": any queue), and ("cancel", id) for a running job."""


class RecordTransaction(Records, Protocol):
    """A transaction that changes several records, and enqueues jobs."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        """Enqueues in this transaction: the jobs exist when it commits.

        Concurrent calls are allowed; jobs of a later call are placed after those of an earlier one.
        """


Atomic = Callable[[RecordTransaction], Awaitable[T]]


class StoreTransaction(RecordTransaction, ImportTransaction, Protocol):
    """A transaction in which a handler writes its own data, settles its job and enqueues others: all or nothing."""

    connection: Any
    """The driver's own connection, inside the transaction."""

    async def execute(self, query: Any, *args: Any) -> None:
        """Runs one statement in the transaction, in the store's own language: placeholders $1 or ?, or a command."""

    async def fetch(self, query: Any, *args: Any) -> list[Any]:
        """Runs one query in the transaction and returns its rows: tuples, or documents on MongoDB."""

    async def settle(self, owner: WorkerId, settlement: Settlement) -> bool:
        """Settles one job in this transaction. Returns False and changes nothing if the lease was lost."""


class Store(Records, ImportVerbs, CallVerbs, OverviewVerbs, Protocol):
    """The verbs of a store: SQLite, PostgreSQL and MongoDB implement them."""

    url: str  # without password
    clock: Clock

    # -- lifecycle ------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connects, or raises StoreUnavailable with the reason. Other verbs connect on first use."""

    async def close(self) -> None:
        """Closes every connection; idempotent."""

    async def now(self) -> datetime:
        """Returns the store's time."""

    async def migrate(self, *, views: bool = False) -> list[str]:
        """Applies missing migrations, once even under concurrent calls, and returns their names.

        `views` also creates the documented views (ROWLOCK_DOCUMENT_VIEWS). Leaves a newer release's schema as it is if
        this code works with it. Raises SchemaTooNew or SchemaTampered, having changed nothing.
        """

    async def schema(self) -> SchemaState:
        """Returns the schema version of the store (0 if empty), the version of this code, and the oldest that works."""

    async def check_schema(self) -> None:
        """Raises SchemaMissing, SchemaTooNew or SchemaTampered unless this code works with the schema.

        Code works with its own schema and with every later one that declares it compatible (see `storage.migrate`).
        """

    async def diagnose(self) -> list[Finding]:
        """Checks for common misconfigurations: durability settings, old versions, starved vacuum, connections."""

    # -- producers ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        """Records all jobs or none, in order, and returns when they are durable.

        A job whose unique key is taken is not created: its receipt names the job that holds the key. With the policy
        REJECT, the verb raises DuplicateJob instead and enqueues nothing. Receipt and error both say if retention has
        removed the holder, which its key outlives. If the key is declared newest-wins and the new job's id is greater
        than the newest that the holder has, the holder takes over the payload, and the id as `newest`. `connection` is
        the caller's own, in a transaction: the jobs become durable and visible when that transaction commits.
        """

    def enqueue_blocking(self, jobs: Sequence[NewJob], connection: Any) -> list[Receipt]:
        """`enqueue` through a synchronous connection of the caller, in the calling thread."""

    async def depth(self, queue: str, at_most: int) -> int:
        """Returns how many jobs wait in the queue (ready or delayed), counted up to `at_most`."""

    async def newest(self, ids: Sequence[JobId]) -> dict[JobId, Newest]:
        """Returns the newest payload of each of these jobs that took one over; omits the others."""

    async def free_keys(self, newest: Mapping[JobId, JobId]) -> list[JobId]:
        """Frees the `while_active` keys of these jobs, except of a job that took over from a newer one than given here.

        Returns the jobs that keep their keys. The next enqueue can take a freed key, so no caller is answered with a
        job that does not run its payload.
        """

    # -- workers -----------------------------------------------------------------------------------

    async def beat(self, workers: Sequence[Worker]) -> list[Held]:
        """Renews all leases of these workers, registers new workers, and returns the leases that they hold.

        Records the job types that a worker has handlers for; a later beat without types leaves them unchanged.
        """

    async def shortest_lease(self, owners: Sequence[WorkerId]) -> float | None:
        """Returns the shortest visibility timeout, in seconds, of these workers' leases; None if they hold none."""

    async def retire(self, owner: WorkerId) -> None:
        """Removes a stopped worker. Leases that it still holds expire on their own."""

    async def warm(self) -> None:
        """Prepares connections so that the first claim and settle are fast. Optional; changes no data."""

    async def claim(self, queue: str, owner: WorkerId, limit: int) -> list[Claimed]:
        """Claims up to `limit` available jobs for this owner, lowest priority number first, then FIFO.

        Each claimed job gets a lease number one higher than its last. Delayed jobs that are due take part; a retried or
        delayed job keeps the place of its enqueue. Skips paused queues and paused limit keys, and never exceeds the
        concurrency or rate of a limit key. A claim checks a bounded number of keys at their limit; the next claim
        continues after them.
        """

    async def peek(self, queues: Sequence[str]) -> list[Peek]:
        """Returns, per queue, if a job is ready and in how many seconds the next delayed job is due; one statement."""

    async def settle(self, owner: WorkerId, settlements: Sequence[Settlement]) -> list[JobId]:
        """Records the outcomes of these attempts together; returns the jobs whose lease was lost, which are unchanged.

        A job with a requested cancellation is cancelled instead of queued again. Error texts may contain anything, even
        NUL. A failure is recorded together with its settlement, or not at all. An attempt whose `seconds` is None did
        not start: it counts towards no rate, and if the job is available again at once, its waiting time continues.
        """

    async def progress(self, owner: WorkerId, reports: Sequence[Progress]) -> list[JobId]:
        """Records the progress of running jobs; returns the jobs whose lease was lost."""

    async def held(self, owner: WorkerId) -> list[Held]:
        """Returns the leases that this owner holds."""

    async def rescue(
        self, limit: int, delay_seconds: Mapping[str, float], redact: Callable[[str], str]
    ) -> list[Rescued]:
        """Takes back up to `limit` jobs whose owner's last beat and whose claim are older than the visibility timeout.

        The lost attempt counts and is recorded as a failure with its payload redacted. The job is queued again after
        the delay of its queue (default: 0), failed if its attempts are spent, or cancelled if a cancellation was
        requested.
        """

    def transaction(self, attempt: Attempt | None = None) -> AbstractAsyncContextManager[StoreTransaction]:
        """Opens a transaction for a handler's own writes; rolls back if the block raises.

        `attempt` is the attempt that uses it. On MongoDB, where a transaction outlives its process, the store aborts it
        once that attempt is lost.
        """

    def reading(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """Opens a read-only transaction: it neither waits for writers nor blocks them, and a write in it fails."""

    async def atomic(self, work: Atomic[T]) -> T:
        """Runs the work in one transaction and returns its result; rolls back if it raises.

        The work may run several times, so it must change nothing but the store. On a MongoDB server without
        transactions each write takes effect at once, and nothing is rolled back.
        """

    def import_step(self, step: ImportStep) -> AbstractAsyncContextManager[StoreTransaction]:
        """Opens the transaction of one step of an import.

        On a store without transactions each write takes effect at once, in an order that lets the next attempt of the
        job complete the step, and only while the attempt holds its lease. There, `merge` and everything that a trial
        would have to undo raise NoTransactions, and `wipe` in a trial only counts. Rows loaded by an earlier attempt
        keep the outcome of that attempt in the counts.
        """

    async def transaction_bounds(self) -> TransactionBounds | None:
        """Returns the size limits of one transaction; None if only the disk limits it.

        With limits, an import that replaces rows does so chunk by chunk (`Load.replaces`) and removes the remaining old
        rows at its end.
        """

    async def lacks_transactions(self) -> str | None:
        """Returns why this store has no transactions, with advice; None if it has them.

        Without them `transaction` raises NoTransactions, and `reading` sees each write as soon as it is done.
        """

    # -- limits -----------------------------------------------------------------------------------

    async def define_limits(self, limits: Sequence[Limit]) -> None:
        """Sets these limits, replacing earlier ones of the same name; jobs whose key has no limit run freely."""

    async def pause_key(self, key: str, seconds: float) -> None:
        """Starts no job of this limit key for `seconds`; a longer pause already set stays.

        Pausing a limit's name pauses all of its parts.
        """

    # -- operators ---------------------------------------------------------------------------------

    async def get(self, job_id: JobId) -> JobRecord | None:
        """Returns one job with all of its fields; None for an unknown or malformed id."""

    async def page(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        """Returns a page of matching jobs, newest first, stable while jobs are added.

        Raises ValueError for a cursor that no page returned.
        """

    async def cancel(self, job_id: JobId) -> CancelResult:
        """Cancels a waiting job at once, or asks the owner of a running job to stop."""

    async def retry(self, where: JobFilter, limit: int) -> Retried:
        """Queues failed or cancelled jobs again with attempts and deaths reset to 0.

        The lease number is rounded up to the next multiple of LEASES_PER_RETRY. A job whose unique key another job now
        holds stays unchanged and is returned as a conflict; of several jobs with one key, the newest is queued. The
        failures of queued jobs are marked resolved.
        """

    async def discard(self, where: JobFilter, limit: int) -> list[JobId]:
        """Removes failed or cancelled jobs and the unique keys that they hold; returns the ids of those jobs."""

    async def count(self, where: JobFilter, at_most: int) -> int:
        """Returns how many jobs match, counted in the store, up to `at_most`."""

    async def pause(self, queue: str) -> None:
        """Stops all claims from this queue until it is resumed; idempotent."""

    async def resume(self, queue: str) -> None:
        """Allows claims from the queue again; idempotent."""

    async def queues(self) -> list[QueueRecord]:
        """Returns every queue that is paused or has waiting or running jobs, by name."""

    async def counts(self) -> dict[Status, int]:
        """Returns the number of jobs per status, read from counters."""

    async def totals(self) -> list[Total]:
        """Returns the number of jobs per queue and type, read from counters."""

    async def activity(self, seconds: float) -> list[Activity]:
        """Returns what happened in the last `seconds` (at most a day), counted by whole minutes."""

    async def compact(self, limit: int) -> int:
        """Adds up to `limit` counter deltas to the counters and returns how many; the counts stay the same."""

    # -- failures ----------------------------------------------------------------------------------

    async def failures(self, where: FailureFilter, limit: int, cursor: str | None = None) -> FailurePage:
        """Returns failed attempts, newest first. Raises ValueError for a cursor that no page returned."""

    async def failure(self, failure_id: FailureId) -> FailureRecord | None:
        """Returns one failed attempt; None for an unknown or malformed id."""

    async def add_failure(self, failure: FailureRecord) -> None:
        """Records a failed attempt of a job that is not in the store; does nothing if the failure's id exists."""

    async def prune_failures(self, days: float, limit: int, *, count: int | None = None) -> int:
        """Removes up to `limit` failures older than `days` or beyond the newest `count`, oldest first; counts them."""

    # -- alerts and measures -----------------------------------------------------------------------

    async def has_unnotified(self) -> bool:
        """Returns whether there is a dead letter that no notification has named."""

    async def assign_notification(self, notice_id: str, limit: int) -> list[DeadLetters]:
        """Assigns up to `limit` new dead letters to a notification; returns all that it names, grouped by job name."""

    async def add_measures(self, measures: Mapping[Measure, float]) -> None:
        """Adds to these numbers."""

    async def measures(self) -> dict[Measure, float]:
        """Returns every number, summed over all workers."""

    # -- the HTTP API ------------------------------------------------------------------------------

    async def changes(self, since: datetime, limit: int) -> Changes:
        """Returns jobs that changed at or after `since`: each job once, as it is now.

        A change is a creation, claim, progress report, settlement, rescue, cancellation or retry. Omits removed jobs,
        and jobs enqueued in a transaction that stayed open for longer than the caller looks back.
        """

    # -- workers and retention --------------------------------------------------------------------

    async def workers(self) -> list[WorkerRecord]:
        """Returns every worker that has sent a beat and has not retired."""

    async def prune(self, policies: Mapping[Status, KeepPolicy], limit: int) -> dict[Status, int]:
        """Removes up to `limit` finished jobs per status beyond its policy, oldest first; returns how many.

        A key held `forever` outlives its job. Waiting and running jobs are never removed. Also removes workers that
        hold no lease and sent no beat for an hour.
        """

    # -- wake-ups ----------------------------------------------------------------------------------

    async def wake(self, queue: str) -> None:
        """Notifies listening workers that this queue may have work: a hint, never needed for correctness."""

    async def listen(self, wake: Wake) -> None:
        """Calls `wake` on every hint until cancelled; raises if hints are unavailable. Polling works without them."""
