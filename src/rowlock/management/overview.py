"""Overview: history by minute, workers with their jobs, dead letters by reason, and the timeline of a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from rowlock.errors import CompanyMismatch
from rowlock.management.company_scope import GROUPED_MAX, GROUPS_MAX
from rowlock.management.endpoint import Parameter, get
from rowlock.management.jobs import Jobs
from rowlock.management.parameters import CompanyFilter, JobIdParameter, MinutesParameter, QueueFilter, TypeFilter
from rowlock.management.schemas.dead_letters import DeadGroupSchema, DeadGroupsSchema
from rowlock.management.schemas.fleet import BusyWorkerSchema, DoingSchema, HistorySchema, RunningSchema
from rowlock.management.schemas.jobs import EventKind, EventSchema, TimelineSchema
from rowlock.notification_job import other_sides
from rowlock.observe.guidance import about_group
from rowlock.storage.overview import HISTORY_MINUTES_MAX
from rowlock.storage.records import JobRecord, Status
from rowlock.storage.reliability import FailureFilter, FailureRecord

RUNNING_MAX = 200
ATTEMPTS_MAX = 200
_ENDS: dict[Status, EventKind] = {
    Status.SUCCEEDED: "succeeded",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}


class Overview(Jobs):
    """Queries for an overview of the fleet and of one job."""

    @get("/api/v1/queues/history", "fleet", "Get the last minutes of every queue", fleet=True)
    async def history(self, minutes: MinutesParameter = 60) -> HistorySchema:
        """Succeeded and failed jobs per minute, and the waiting time of the oldest available job.

        The last minute has not ended. A lag is null in minutes in which no supervisor ran.
        """
        self._fleet()
        minutes = max(1, min(minutes, HISTORY_MINUTES_MAX))
        return HistorySchema.of(await self._app.store.history(minutes), minutes, self._app.engine.queues())

    @get("/api/v1/workers", "fleet", "List workers with their running jobs", fleet=True)
    async def doing(self) -> DoingSchema:
        """Earliest start first. `more` is true if over 200 jobs run."""
        self._fleet()
        store = self._app.store
        now, workers = await store.now(), await store.workers()
        running = await store.running(RUNNING_MAX + 1)
        jobs: dict[str, list[RunningSchema]] = {worker.id: [] for worker in workers}
        for job in running[:RUNNING_MAX]:
            if job.owner in jobs:
                jobs[job.owner].append(RunningSchema.of(job, self._redact))
        visibility_ms = self._app.settings.visibility_ms
        busy = [BusyWorkerSchema.of(each, now, visibility_ms, jobs=jobs[each.id]) for each in workers]
        return DoingSchema(workers=busy, more=len(running) > RUNNING_MAX)

    @get("/api/v1/queue/dead-letter/groups", "jobs", "Group dead letters by type and reason")
    async def dead_groups(
        self, *, type: TypeFilter = None, queue: QueueFilter = None, company_id: CompanyFilter = None
    ) -> DeadGroupsSchema:
        """Largest group first. If there are very many failed jobs, only the newest are counted and `complete` is false.

        The reason is the first line of the stored error, without secrets: jobs are filtered by it. Only the newest
        failed jobs are grouped, `lookedAt` of them; `complete` is false if there may be more.
        """
        where = self._where(Status.FAILED, type, queue, company_id)
        found = await self._app.store.dead_groups(where, GROUPED_MAX, GROUPS_MAX + 1)
        others = other_sides(self._app)
        shown = [(group, self._shown_reason(group.reason)) for group in found.groups[:GROUPS_MAX]]
        groups = [
            DeadGroupSchema(
                type=group.type,
                reason=reason,
                count=group.count,
                first_at=group.first_at,
                last_at=group.last_at,
                sample_id=group.sample_id,
                guidance=about_group(group.type, reason, others.get(group.type)),
            )
            for group, reason in shown
        ]
        return DeadGroupsSchema(
            groups=groups,
            more=len(found.groups) > GROUPS_MAX,
            looked_at=found.looked_at,
            complete=found.looked_at < GROUPED_MAX,
        )

    @get("/api/v1/queue/{job_id}/timeline", "jobs", "Get the timeline of a job", fails=(404,))
    async def timeline(
        self,
        job_id: JobIdParameter,
        *,
        stacks: Annotated[
            bool, Parameter("Include stack traces; requires the role admin and a token for all companies.")
        ] = True,
    ) -> TimelineSchema:
        """The events of a job, oldest first; `more` is true if old attempts are left out."""
        record = await self._found(job_id)
        page = await self._app.store.failures(FailureFilter(job_id=record.id), ATTEMPTS_MAX)
        found = [*_beginning(record), *_attempts(page.failures), *_end(record, page.failures)]
        # A start is the end minus the duration that the worker measured, so it may be before created_at.
        found.sort(key=lambda event: max(event.at, record.created_at))
        events = [
            EventSchema(
                at=max(event.at, record.created_at),
                kind=event.kind,
                attempt=event.attempt,
                seconds=event.seconds,
                owner=event.owner,
                reason=event.reason and self._redact.message(event.reason),
                stack_trace=self._redact.stack(event.stack) if stacks and event.stack else None,
            )
            for event in found
        ]
        return TimelineSchema(job_id=record.id, events=events, more=page.next_cursor is not None)

    def _fleet(self) -> None:
        if self._company_id is not None:
            raise CompanyMismatch(f"company {self._company_id!r} asks, and this is about all of them")


@dataclass(frozen=True, slots=True)
class _Event:
    """An event of a timeline, not redacted yet."""

    at: datetime
    kind: EventKind
    attempt: int | None = None
    seconds: float | None = None
    owner: str | None = None
    reason: str | None = None
    stack: str | None = None


def _beginning(job: JobRecord) -> list[_Event]:
    return [_Event(job.created_at, "enqueued")]


def _attempts(failures: list[FailureRecord]) -> list[_Event]:
    """Return the events of failed attempts, and of retries by operators."""
    events: list[_Event] = []
    for failure in reversed(failures):
        number, began, owner = failure.attempts, failure.started_at, failure.owner
        if began is not None:
            events.append(_Event(began, "started", number, owner=owner))
        seconds = None if began is None else (failure.first_failed_at - began).total_seconds()
        why, where = failure.failed_reason, failure.stack_trace
        failed = _Event(
            failure.first_failed_at, "failed", number, seconds=seconds, owner=owner, reason=why, stack=where
        )
        events.append(failed)
    again = dict.fromkeys(failure.resolved_at for failure in failures if failure.resolved_at is not None)
    return events + [_Event(moment, "retried") for moment in again]


def _end(job: JobRecord, failures: list[FailureRecord]) -> list[_Event]:
    """Return the events of the running or last attempt, and the due time of the next one."""
    number, began, ended = job.attempts, job.started_at, job.finished_at
    if job.status is Status.QUEUED:
        waits = job.attempts > 0 or job.available_at > job.created_at
        return [_Event(job.available_at, "due", number + 1)] if waits else []
    started = [] if began is None else [_Event(began, "started", number, owner=job.lock_owner)]
    if job.status is Status.PROCESSING or ended is None:
        return started
    if job.status is Status.FAILED and failures and failures[0].is_final_attempt and failures[0].resolved_at is None:
        return []  # it is the last of the failed attempts
    seconds = None if began is None else (ended - began).total_seconds()
    return [*started, _Event(ended, _ENDS[job.status], number or None, seconds=seconds, reason=job.error)]
