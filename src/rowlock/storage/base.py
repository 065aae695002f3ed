"""The contract of a store: its verbs, each with its guarantee in one sentence.

    enqueue ─▶ ready ─claim─▶ running ─settle─▶ finished ─prune─▶ gone
                 ▲  ▲            │ │                │
       due ──────┘  └──rescue────┘ └─settle(retry)  └─retry (operator)
     delayed ◀─────────────────────────┘

Every verb is atomic. Every verb reads the time from `clock`: the store's own clock, or a fake one
in tests. Every change to a running job names its id, its lease and its owner; where they no longer
match, nothing changes and the answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from rowlock.clock import Clock
from rowlock.storage.access import Changes, NewToken, RequestAnswer, TokenId, TokenRecord
from rowlock.storage.call_verbs import CallVerbs
from rowlock.storage.import_verbs import ImportTransaction, ImportVerbs
from rowlock.storage.overview_verbs import OverviewVerbs
from rowlock.storage.records import (
    CancelResult,
    Claimed,
    Finding,
    Glance,
    Held,
    JobFilter,
    JobId,
    JobRecord,
    KeepPolicy,
    Limit,
    NewJob,
    Page,
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
    Deaths,
    FailureFilter,
    FailureId,
    FailurePage,
    FailureRecord,
    LockAnswer,
    LockKey,
    LockRecord,
    Measure,
    RunRecord,
    ScheduleRecord,
    Tick,
    Total,
)

Wake = Callable[[str, str], None]
"""Called with ("queue", name) when a queue may have work ("*": any of them), ("cancel", id) for a running job."""


class StoreTransaction(ImportTransaction, Protocol):
    """The user's writes and the end of their job, committed together or not at all."""

    connection: Any
    """The driver's own connection, inside the transaction."""

    async def execute(self, query: Any, *args: Any) -> None:
        """Run one statement in the transaction, in the store's own language: placeholders $1 or ?, or a command."""

    async def fetch(self, query: Any, *args: Any) -> list[Any]:
        """Run one query in the transaction and return its rows: tuples, or documents on MongoDB."""

    async def settle(self, owner: WorkerId, settlement: Settlement) -> bool:
        """Settle one job in this transaction; False, and nothing else, when the lease was lost."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Receipt]:
        """Enqueue in this transaction: the jobs exist when it commits.

        It may be called again before it has returned: those jobs come behind these.
        """


class Store(ImportVerbs, CallVerbs, OverviewVerbs, Protocol):
    """Where jobs rest."""

    url: str  # without its password
    clock: Clock

    # -- life of the store ---------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; raises StoreUnavailable with the reason when it cannot. Other verbs do this when needed."""

    async def close(self) -> None:
        """Let go of every connection; idempotent."""

    async def now(self) -> datetime:
        """The store's time."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date and name the migrations applied; two callers at once apply each one once.

        Raises SchemaTooNew or SchemaTampered, having changed nothing.
        """

    async def schema(self) -> SchemaState:
        """The version that the store has (0 when empty) and the one that this code wants."""

    async def check_schema(self) -> None:
        """Raise SchemaMissing, SchemaTooNew or SchemaTampered unless the schema is exactly what this code wants."""

    async def examine(self) -> list[Finding]:
        """Look for what bites people: durability settings, old versions, starved vacuum, connections."""

    # -- producers ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Receipt]:
        """Record all jobs or none, in order, and return when they are durable.

        A job whose unique key is taken is not created: its receipt names the job that holds the key, or, where
        its policy is REJECT, DuplicateJob is raised and nothing is enqueued at all. Through `connection`
        (the caller's own, in its transaction) the jobs become durable and visible when that transaction commits.
        """

    def enqueue_blocking(self, jobs: Sequence[NewJob], connection: Any) -> list[Receipt]:
        """The same through a synchronous connection of the caller's, in the calling thread."""

    async def depth(self, queue: str, at_most: int) -> int:
        """How many jobs wait in the queue (ready or delayed), counted up to `at_most`."""

    # -- workers -----------------------------------------------------------------------------------

    async def beat(self, workers: Sequence[Worker]) -> list[Held]:
        """Keep all leases of these workers alive (a new worker becomes known) and return the leases that they hold."""

    async def retire(self, owner: WorkerId) -> None:
        """Forget a worker that has stopped; its leases, if any are left, run out by themselves."""

    async def warm(self) -> None:
        """Get ready to claim and settle without delay; nothing changes, and nothing depends on it."""

    async def claim(self, queue: str, owner: WorkerId, limit: int) -> list[Claimed]:
        """Take up to `limit` available jobs, lowest priority number first, then first come first served.

        Each gets a lease number one higher than its last and has this owner alone. A job that waits again, or was
        delayed, keeps the place of its enqueueing; delayed jobs that are due take part. Nothing from a paused queue,
        nothing beyond a limit key's concurrency or rate, nothing of a paused key.
        """

    async def glance(self, queues: Sequence[str]) -> list[Glance]:
        """For each queue, in one statement: is anything ready, and in how many seconds is the next delayed job due?"""

    async def settle(self, owner: WorkerId, settlements: Sequence[Settlement]) -> list[JobId]:
        """Record how these attempts ended, all at once; the jobs returned had lost their lease and are unchanged.

        A job that was to be cancelled does not wait again: it is cancelled. Error texts may hold anything, even NUL.
        The failures that come along are recorded with the settlements that they belong to, or not at all.
        """

    async def progress(self, owner: WorkerId, reports: Sequence[Progress]) -> list[JobId]:
        """Record the progress of running jobs; return the jobs whose lease was lost."""

    async def held(self, owner: WorkerId) -> list[Held]:
        """The leases that this owner holds."""

    async def rescue(
        self, limit: int, delay_seconds: Mapping[str, float], redact: Callable[[str], str]
    ) -> list[Rescued]:
        """Take back up to `limit` jobs whose owner was not seen, and whose claim is older, than the visibility timeout.

        The lost attempt counts and is recorded as a failure, its payload redacted: such a job is queued again after the
        delay of its queue (0 where none is given), failed when its attempts are spent, or cancelled when that had been
        asked for.
        """

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """A transaction on the store for a handler's own writes; rolled back when the block raises."""

    def reading(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """A transaction that only looks: it waits for no writer, none waits for it, and what it would write fails."""

    # -- limits -----------------------------------------------------------------------------------

    async def define_limits(self, limits: Sequence[Limit]) -> None:
        """Set these limits, replacing earlier ones of the same name; jobs whose key has no limit are free."""

    async def pause_key(self, key: str, seconds: float) -> None:
        """Start nothing of this limit key for so long; a longer pause already set stays.

        Pausing a limit's name pauses all of its parts.
        """

    # -- operators ---------------------------------------------------------------------------------

    async def get(self, job_id: JobId) -> JobRecord | None:
        """The whole record of one job; an id that is not a UUID is nobody's."""

    async def page(self, where: JobFilter, limit: int, cursor: str | None = None) -> Page:
        """Jobs newest first; the cursor goes on where the last page ended, whatever was added meanwhile.

        A cursor that no page came with is a ValueError.
        """

    async def cancel(self, job_id: JobId) -> CancelResult:
        """Cancel a waiting job at once, or ask the owner of a running one to stop."""

    async def retry(self, where: JobFilter, limit: int) -> Retried:
        """Queue failed or cancelled jobs again, attempts and deaths counted anew; the lease number goes on.

        A job whose unique key another job holds meanwhile stays as it is, and is named. The failures of those that are
        queued count as resolved.
        """

    async def discard(self, where: JobFilter, limit: int) -> list[JobId]:
        """Remove failed or cancelled jobs, and the unique keys that they hold."""

    async def count(self, where: JobFilter, at_most: int) -> int:
        """How many jobs match, counted up to `at_most`, in the store."""

    async def pause(self, queue: str) -> None:
        """From now on nothing is claimed from this queue, by anyone, until it is resumed; idempotent."""

    async def resume(self, queue: str) -> None:
        """Let the queue be claimed from again; idempotent."""

    async def queues(self) -> list[QueueRecord]:
        """Every queue that has waiting or running jobs or is paused, by name."""

    async def counts(self) -> dict[Status, int]:
        """How many jobs there are of each status, known without counting them."""

    async def totals(self) -> list[Total]:
        """The same by queue and type."""

    async def activity(self, seconds: float) -> list[Activity]:
        """What happened in the last so many seconds, at most a day, counted by whole minutes."""

    async def fold(self, limit: int) -> int:
        """Fold up to `limit` notes of changes into the counts, which stay the same; how many there were."""

    # -- failures ----------------------------------------------------------------------------------

    async def failures(self, where: FailureFilter, limit: int, cursor: str | None = None) -> FailurePage:
        """Failed attempts, newest first. A cursor that no page came with is a ValueError."""

    async def failure(self, failure_id: FailureId) -> FailureRecord | None:
        """One failed attempt; an id that is not a UUID is nobody's."""

    async def prune_failures(self, days: float, limit: int) -> int:
        """Remove up to `limit` failures older than this, oldest first, and count them."""

    # -- locks -------------------------------------------------------------------------------------

    async def take_lock(self, key: LockKey, payload_hash: str, holder: str, stale_seconds: float) -> LockAnswer:
        """Take the lock where its state allows, with a token one higher than its last; one of two askers gets it.

        Free, failed, or completed with other data: taken. Running: taken from the same holder, or when it was taken
        longer ago than `stale_seconds`. Else nothing changes, and the answer says why.
        """

    async def end_lock(self, key: LockKey, token: int, completed: bool) -> bool:
        """Mark the work completed or failed; False, and nothing else, when the lock was taken over."""

    async def locks(self, job_key: str | None, company_id: str | None, limit: int) -> list[LockRecord]:
        """Locks, the last taken first."""

    async def prune_locks(self, days: float, limit: int) -> int:
        """Remove up to `limit` locks that ended longer ago, oldest first, and count them; never a running one."""

    # -- schedules ---------------------------------------------------------------------------------

    async def declare_schedules(self, schedules: Sequence[tuple[str, str, datetime]]) -> None:
        """Make these (name, spec, first tick) known; one that is known and whose spec is the same stays as it is."""

    async def schedules(self) -> list[ScheduleRecord]:
        """Every schedule, by name."""

    async def fire(self, tick: Tick) -> Receipt | None:
        """Enqueue the job of a tick, record the run and move the schedule on, all at once and once in the fleet.

        None, and nothing else, when another did so already, or the schedule is paused; and where the tick has no job.
        A schedule that expects a tick which has run, out of turn, moves on without it.
        """

    async def close_runs(self, limit: int) -> list[RunRecord]:
        """Note how runs ended whose job is over; those that were noted now."""

    async def runs(self, name: str | None, limit: int, before: datetime | None = None) -> list[RunRecord]:
        """Runs, the latest tick first."""

    async def prune_runs(self, days: float, limit: int) -> int:
        """Remove up to `limit` runs that ended longer ago, oldest first, and count them."""

    async def pause_schedule(self, name: str) -> bool:
        """No tick fires until it is resumed; False when there is no such schedule."""

    async def resume_schedule(self, name: str, next_at: datetime) -> bool:
        """Go on with this tick, if it was paused; False when there is no such schedule."""

    # -- alerts and measures -----------------------------------------------------------------------

    async def raise_alert(self, name: str) -> bool:
        """Whether this call raised it: False while it is raised already."""

    async def clear_alert(self, name: str) -> datetime | None:
        """End an alert; since when it was raised, or None when it was not."""

    async def unsaid_deaths(self) -> bool:
        """Whether some job has failed for good that no message has named."""

    async def say_deaths(self, notice_id: str, limit: int) -> list[Deaths]:
        """Up to `limit` deaths that no message has named, and those that this one had before, grouped by job name."""

    async def add_measures(self, measures: Mapping[Measure, float]) -> None:
        """Add to these numbers."""

    async def measures(self) -> dict[Measure, float]:
        """Every number, summed over all workers."""

    # -- the HTTP API ------------------------------------------------------------------------------

    async def add_token(self, token: NewToken) -> TokenRecord:
        """Record a token by its digest; it expires by the store's clock."""

    async def token(self, digest: str) -> TokenRecord | None:
        """The token with this digest, unless it was revoked or has expired."""

    async def tokens(self) -> list[TokenRecord]:
        """Every token, revoked and expired ones too, the oldest first."""

    async def revoke_token(self, token_id: TokenId) -> bool:
        """End a token now; the first time counts. False when no token has this id, which need not be a UUID."""

    async def touch_tokens(self, token_ids: Sequence[TokenId]) -> None:
        """Note that these were used just now."""

    async def begin_request(
        self, key: str, fingerprint: str, job_id: JobId, *, keep_seconds: float, stale_seconds: float
    ) -> RequestAnswer:
        """Say what is known of the request with this key, and take it where it is the caller's to do.

        Of callers at the same time one gets NEW. One that was begun longer ago than `stale_seconds` and not ended is
        BROKEN_OFF for one caller, which takes it, with the job id that it was first given. After `keep_seconds` the key
        is NEW again. A key that was used with another fingerprint is OTHER. Whoever takes it gets a `begun_at` that no
        try before had, even where the clock stands still.
        """

    async def end_request(self, key: str, begun_at: datetime, status: int, body: str) -> None:
        """Keep the answer of the request that was begun at this moment.

        One that another try has taken over since, or that was ended, stays as it is; a key that is not known any more
        is left alone.
        """

    async def release_request(self, key: str, begun_at: datetime) -> None:
        """How it ended is not known: let the next try take it at once, as BROKEN_OFF.

        One that another try has taken over since, or that was ended, stays as it is.
        """

    async def prune_access(self, days: float, limit: int) -> int:
        """Remove up to `limit` requests past their time, and tokens that ended longer ago; count both."""

    async def changes(self, since: datetime, limit: int) -> Changes:
        """Jobs that were created, claimed, reported on, settled, rescued, cancelled or retried at or after this moment.

        Each is told once, as it is now. Jobs that were removed, and those enqueued in a transaction that was open for
        longer than the caller looks back, are not.
        """

    # -- everyone ----------------------------------------------------------------------------------

    async def workers(self) -> list[WorkerRecord]:
        """Every worker that has been seen and has not retired."""

    async def prune(self, policies: Mapping[Status, KeepPolicy], limit: int) -> dict[Status, int]:
        """Remove up to `limit` finished jobs of each status that its policy lets go, oldest first, and count them.

        A key held `forever` outlives its job. Waiting and running jobs are never touched. Workers that hold nothing and
        were not seen for an hour are forgotten too.
        """

    # -- wake-ups ----------------------------------------------------------------------------------

    async def wake(self, queue: str) -> None:
        """Tell listening workers that this queue may have work: a hint, never needed for correctness."""

    async def listen(self, wake: Wake) -> None:
        """Call `wake` on every hint until cancelled; raises when hints are unavailable, polling goes on without."""
