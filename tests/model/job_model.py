"""The life of jobs in plain Python, compared with a store call by call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rowlock.storage.records import (
    CancelResult,
    Claimed,
    JobId,
    Limit,
    NewJob,
    Outcome,
    Progress,
    Receipt,
    Rescued,
    Settlement,
    Status,
    UniqueKey,
    WorkerId,
    lease_after_retry,
)

ENDS = {
    Outcome.SUCCEEDED: Status.SUCCEEDED,
    Outcome.FAILED: Status.FAILED,
    Outcome.CANCELLED: Status.CANCELLED,
    Outcome.FATAL: Status.FAILED,
}


@dataclass(slots=True)
class Job:
    new: NewJob
    place: int  # first come, first served
    available_at: datetime
    status: Status = Status.QUEUED
    attempts: int = 0
    deaths: int = 0
    lease: int = 0
    owner: WorkerId | None = None
    locked_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested: bool = False
    progress: int | None = None


@dataclass(slots=True)
class Holder:
    job_id: JobId
    expires_at: datetime | None  # None: never


@dataclass(slots=True)
class Failure:
    job_id: JobId
    attempts: int
    final: bool
    resolved: bool = False


@dataclass(slots=True)
class JobModel:
    now: datetime
    limits: dict[str, Limit]
    jobs: dict[JobId, Job] = field(default_factory=dict)
    keys: dict[str, Holder] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    paused_keys: dict[str, datetime] = field(default_factory=dict)
    seen: dict[WorkerId, datetime] = field(default_factory=dict)
    starts: list[tuple[str, datetime, JobId]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)  # these outlive their jobs
    _places: int = 0

    # -- producers ---------------------------------------------------------------------------------

    def holder(self, key: str) -> JobId | None:
        held = self.keys.get(key)
        if held is None or (held.expires_at is not None and held.expires_at <= self.now):
            return None
        return held.job_id

    def enqueue(self, new: NewJob) -> Receipt:
        """Record the job, unless its key is taken."""
        if new.unique is not None:
            if existing := self.holder(new.unique.key):
                return Receipt(existing, False, existing not in self.jobs)
            self._hold(new.unique, new.id)
        self._places += 1
        self.jobs[new.id] = Job(new, self._places, self.now + timedelta(seconds=new.delay_seconds))
        return Receipt(new.id, True)

    def _hold(self, unique: UniqueKey, job_id: JobId) -> None:
        expires_at = None if unique.seconds is None else self.now + timedelta(seconds=unique.seconds)
        self.keys[unique.key] = Holder(job_id, expires_at)

    # -- workers -----------------------------------------------------------------------------------

    def claim(self, queue: str, owner: WorkerId, limit: int) -> list[Job]:
        """Take the jobs that a store must take, in order."""
        taken: list[Job] = []
        if queue in self.paused:
            return taken
        for job in sorted(self.jobs.values(), key=lambda job: (job.new.priority, job.place)):
            if len(taken) == limit:
                break
            waits = job.status is Status.QUEUED and job.new.queue == queue and job.available_at <= self.now
            if waits and self._may_start(job.new.limit_key):
                job.status, job.owner, job.locked_at = Status.PROCESSING, owner, self.now
                job.lease += 1
                job.attempts += 1
                job.progress = None
                if job.new.limit_key:
                    self.starts.append((job.new.limit_key, self.now, job.new.id))
                taken.append(job)
        return taken

    def _may_start(self, key: str | None) -> bool:
        if key is None:
            return True
        name = key.partition(":")[0]
        if any(self.paused_keys.get(one, self.now) > self.now for one in (key, name)):
            return False
        limit = self.limits.get(name)
        if limit is None:
            return True
        running = sum(job.new.limit_key == key for job in self.jobs.values() if job.status is Status.PROCESSING)
        window = self.now - timedelta(seconds=limit.per_seconds)
        started = sum(one == key and when > window for one, when, _ in self.starts)
        return (limit.concurrency is None or running < limit.concurrency) and (
            limit.rate is None or started < limit.rate
        )

    def owns(self, owner: WorkerId, job_id: JobId, lease: int) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.owner == owner and job.lease == lease and job.status is Status.PROCESSING

    def settle(self, owner: WorkerId, ends: Sequence[Settlement]) -> list[JobId]:
        lost = [end.job_id for end in ends if not self.owns(owner, end.job_id, end.lease)]
        for end in ends:
            if end.job_id not in lost:
                job = self.jobs[end.job_id]
                if end.seconds is None:
                    self.starts = [one for one in self.starts if one[1:] != (job.locked_at, end.job_id)]
                self._end(job, Outcome(end.outcome), end.delay_seconds, end.failure is not None)
        return lost

    def _end(self, job: Job, outcome: Outcome, delay_seconds: float, failed: bool) -> None:
        job.owner = job.locked_at = job.progress = None
        job.attempts -= outcome in (Outcome.RELEASE, Outcome.SUSPECT)
        job.deaths += outcome in (Outcome.CRASH, Outcome.SUSPECT, Outcome.FATAL)
        if job.cancel_requested and not outcome.final:
            outcome = Outcome.CANCELLED
        job.cancel_requested = False
        if failed:
            final = outcome.final and ENDS[outcome] is Status.FAILED
            self.failures.append(Failure(job.new.id, job.attempts, final))
        if outcome.final:
            self._finish(job, ENDS[outcome])
            return
        job.status = Status.QUEUED
        job.available_at = self.now + timedelta(seconds=delay_seconds)

    def _finish(self, job: Job, status: Status) -> None:
        job.status, job.finished_at = status, self.now
        unique = job.new.unique
        if unique is not None and unique.while_active:
            self._free(job)

    def _free(self, job: Job) -> None:
        unique = job.new.unique
        if unique is not None and unique.key in self.keys and self.keys[unique.key].job_id == job.new.id:
            del self.keys[unique.key]

    def progress(self, owner: WorkerId, reports: Sequence[Progress]) -> list[JobId]:
        lost = [report.job_id for report in reports if not self.owns(owner, report.job_id, report.lease)]
        for report in reports:
            if report.job_id not in lost:
                self.jobs[report.job_id].progress = report.percent
        return lost

    def expired(self) -> list[JobId]:
        """The jobs whose owner was not seen, and whose claim is older, than their visibility timeout."""
        return [job.new.id for job in self.jobs.values() if job.status is Status.PROCESSING and self._is_expired(job)]

    def _is_expired(self, job: Job) -> bool:
        assert job.owner is not None
        assert job.locked_at is not None
        alive = max(job.locked_at, self.seen.get(job.owner, job.locked_at))
        return alive + timedelta(milliseconds=job.new.visibility_ms) < self.now

    def rescue(self, job_id: JobId, delay_seconds: float) -> Rescued:
        job = self.jobs[job_id]
        assert job.owner is not None
        owner, attempt = job.owner, job.attempts
        spent = attempt >= job.new.max_attempts
        outcome = Outcome.FAILED if spent and not job.cancel_requested else Outcome.RETRY
        self._end(job, outcome, delay_seconds, failed=not job.cancel_requested)
        return Rescued(job_id, job.new.type, job.new.queue, owner, attempt, job.new.max_attempts, job.status)

    # -- operators ---------------------------------------------------------------------------------

    def cancel(self, job_id: JobId) -> CancelResult:
        job = self.jobs.get(job_id)
        if job is None:
            return CancelResult.NOT_FOUND
        if job.status.final:
            return CancelResult.ALREADY_FINAL
        if job.status is Status.PROCESSING:
            job.cancel_requested = True
            return CancelResult.REQUESTED
        self._finish(job, Status.CANCELLED)
        return CancelResult.CANCELLED

    def run_now(self, job_id: JobId) -> bool:
        """Let the job be available now, if it waits for its time."""
        job = self.jobs.get(job_id)
        if job is None or job.status is not Status.QUEUED or job.available_at <= self.now:
            return False
        job.available_at = self.now
        return True

    def dead(self) -> list[JobId]:
        return [id for id, job in self.jobs.items() if job.status in (Status.FAILED, Status.CANCELLED)]

    def retry(self, job_id: JobId) -> bool:
        """Queue the job again; False, and nothing changes, when another job holds its key."""
        job = self.jobs[job_id]
        unique = job.new.unique
        if unique is not None:
            if self.holder(unique.key) not in (None, job_id):
                return False
            if unique.while_active:
                self._hold(unique, job_id)
        job.status, job.attempts, job.deaths, job.finished_at = Status.QUEUED, 0, 0, None
        job.lease = lease_after_retry(job.lease)
        job.available_at = self.now
        for failure in self.failures:
            failure.resolved |= failure.job_id == job_id
        return True

    def discard(self, job_id: JobId) -> None:
        self._free(self.jobs.pop(job_id))

    def prune(self, status: Status, older_than_seconds: float) -> int:
        before = self.now - timedelta(seconds=older_than_seconds)
        gone = [
            id
            for id, job in self.jobs.items()
            if job.status is status and job.finished_at is not None and job.finished_at < before
        ]
        for job_id in gone:
            del self.jobs[job_id]
        return len(gone)

    def counts(self) -> dict[Status, int]:
        return {status: sum(job.status is status for job in self.jobs.values()) for status in Status}

    def totals(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """By queue and type: how many wait or run, and how many came to each end."""
        kinds: dict[tuple[str, str], list[Status | None]] = {}
        for job in self.jobs.values():
            kinds.setdefault((job.new.queue, job.new.type), []).append(job.status if job.status.final else None)
        ends = (None, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)
        return {kind: tuple(found.count(end) for end in ends) for kind, found in kinds.items()}

    def agrees(self, claims: Sequence[Claimed], taken: Sequence[Job]) -> bool:
        """Whether a store's answer to a claim is the model's."""
        return [(one.id, one.lease, one.attempt, one.deaths) for one in claims] == [
            (job.new.id, job.lease, job.attempts, job.deaths) for job in taken
        ]
