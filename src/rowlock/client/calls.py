"""The management service of a server, over HTTP: the names, parameters and results of `ManagementService`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import orjson

from rowlock.client.imports import Imports
from rowlock.client.stream import Event, events
from rowlock.client.sync import Sync
from rowlock.client.wire import Wire
from rowlock.errors import JobNotFound
from rowlock.ids import is_uuid
from rowlock.jobs.new_jobs import Options
from rowlock.jobs.payload import encode
from rowlock.jobs.policy import Unique
from rowlock.jobs.registry import checked_name
from rowlock.management import operations
from rowlock.management.schemas.dead_letters import (
    DeadGroupsSchema,
    DiscardedSchema,
    FailureSchema,
    FailuresSchema,
    RetriedSchema,
    RetrySchema,
)
from rowlock.management.schemas.fleet import (
    DoingSchema,
    HealthSchema,
    HistorySchema,
    PrunedSchema,
    QueueHealthSchema,
    QueuesSchema,
    SwitchedSchema,
)
from rowlock.management.schemas.jobs import EnqueuedSchema, JobSchema, PageSchema, StatsSchema, TimelineSchema
from rowlock.management.schemas.schedules import (
    RunsSchema,
    SchedulePausedSchema,
    ScheduleResumedSchema,
    ScheduleRunSchema,
    SchedulesSchema,
)
from rowlock.storage.records import JobId, Status

if TYPE_CHECKING:
    import httpx

_QUEUE = "/api/v1/queue"
_ADMIN = "/api/admin/queue"
_PAYLOAD_BYTES_MAX = 64 * 1_048_576  # no server accepts more; each has its own limit


class Client(Imports, Sync):
    """Client of one server, with a token.

    Sends a request up to 4 times if the server is busy or the connection breaks, with an Idempotency-Key, so that
    nothing is done twice. Errors are those of local calls, or RequestFailed.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_seconds: float = 30,
        transport: httpx.AsyncBaseTransport | None = None,
        insecure: bool | None = None,
    ) -> None:
        if insecure is None:
            insecure = os.environ.get("ROWLOCK_INSECURE") == "1"
        self._wire = Wire(url, token, timeout_seconds=timeout_seconds, transport=transport, insecure=insecure)

    def __repr__(self) -> str:
        return f"Client({self._wire.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    # -- jobs --------------------------------------------------------------------------------------

    async def enqueue(
        self,
        type: str,
        payload: dict[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        company_id: str | None = None,
        unique: Unique | None = None,
        limit_key: str | None = None,
    ) -> EnqueuedSchema:
        """Enqueue a job; return its record, and whether this call `created` it."""
        Options(queue, priority, delay_seconds, at, max_attempts, company_id, unique, limit_key).check(type)
        text = encode({} if payload is None else payload, type, _PAYLOAD_BYTES_MAX)
        given = {
            "queue": queue,
            "priority": priority,
            "delaySeconds": delay_seconds or None,
            "availableAt": at and at.isoformat(),
            "maxAttempts": max_attempts,
            "companyId": company_id,
            "unique": unique and _unique(unique),
            "limitKey": limit_key,
        }
        body = {"type": type, "payload": orjson.Fragment(text)} | _given(given)
        return await self._wire.post(EnqueuedSchema, f"{_QUEUE}/enqueue", body)

    async def job(self, job_id: JobId, *, raw: bool = False) -> JobSchema:
        """Return one job with all fields; its secrets are redacted unless `raw`, which needs the role admin."""
        return await self._wire.get(JobSchema, _job(job_id), raw=raw or None)

    async def jobs(
        self,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> PageSchema:
        """Jobs, newest first: {jobs, nextCursor}; with a reason, only those that failed for it."""
        word = None if status is None else Status(status).value
        asked: dict[str, Any] = {
            "status": word,
            "type": type,
            "queue": queue,
            "companyId": company_id,
            "reason": reason,
        }
        times: dict[str, Any] = {"since": since and since.isoformat(), "until": until and until.isoformat()}
        return await self._wire.get(PageSchema, _QUEUE, **asked, **times, limit=limit, cursor=cursor)

    async def timeline(self, job_id: JobId, *, stacks: bool = True) -> TimelineSchema:
        """The events of a job, oldest first: {jobId, events, more}; stack traces need the role admin."""
        return await self._wire.get(TimelineSchema, f"{_job(job_id)}/timeline", stacks=None if stacks else False)

    async def wait(self, job_id: JobId, seconds: float) -> JobSchema:
        """Poll a job until it ends or `seconds` pass, and return it."""
        return await operations.wait(self, job_id, seconds)

    async def retry(self, job_id: JobId) -> JobSchema:
        """Queue a failed or cancelled job again, with fresh attempts."""
        return await self._wire.post(JobSchema, f"{_job(job_id)}/retry")

    async def cancel(self, job_id: JobId) -> JobSchema:
        """Cancel a waiting job, or ask a running one to stop; return the job. Raises JobIsOver if it has ended."""
        return await self._wire.post(JobSchema, f"{_job(job_id)}/cancel")

    async def run_now(self, job_id: JobId) -> JobSchema:
        """Make a delayed job available now; return the job. Raises JobNotWaiting if it runs or has ended."""
        return await self._wire.post(JobSchema, f"{_job(job_id)}/run-now")

    async def dead_groups(
        self, *, type: str | None = None, queue: str | None = None, company_id: str | None = None
    ) -> DeadGroupsSchema:
        """Failed jobs by type and reason, the largest group first: {groups, more, lookedAt, complete}."""
        asked: dict[str, Any] = {"type": type, "queue": queue, "companyId": company_id}
        return await self._wire.get(DeadGroupsSchema, f"{_QUEUE}/dead-letter/groups", **asked)

    async def retry_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
    ) -> RetriedSchema:
        """Queue up to `limit` failed jobs again, newest first; continue with `nextCursor` if there are more."""
        given = _dead(ids, type, queue, company_id, reason, dry_run, limit, cursor)
        return await self._wire.post(RetriedSchema, f"{_QUEUE}/dead-letter/retry", given)

    async def discard_dead(
        self,
        *,
        ids: Sequence[JobId] | None = None,
        type: str | None = None,
        queue: str | None = None,
        company_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        cursor: str | None = None,
    ) -> DiscardedSchema:
        """Remove up to `limit` failed jobs permanently, newest first; continue with `nextCursor` if there are more."""
        given = _dead(ids, type, queue, company_id, reason, dry_run, limit, cursor)
        return await self._wire.post(DiscardedSchema, f"{_QUEUE}/dead-letter/discard", given)

    async def stats(self) -> StatsSchema:
        """Job counts by status; for all companies also the totals of the last hour."""
        return await self._wire.get(StatsSchema, f"{_QUEUE}/stats")

    def events(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        job_id: JobId | None = None,
        last_event_id: str | None = None,
    ) -> AsyncGenerator[Event]:
        """Yield changes of jobs, imports and queues as they happen, as (kind, data, id), until the caller stops.

        Resumes after a broken connection where it ended; an event may then come twice. Raises if the server
        refuses, or cannot be reached repeatedly.
        """
        asked = _given({"queue": queue, "type": type, "job": job_id})
        return events(self._wire, "/api/v1/events", asked, last_event_id)

    # -- failures ----------------------------------------------------------------------------------

    async def failures(
        self,
        *,
        company_id: str | None = None,
        job_name: str | None = None,
        job_id: JobId | None = None,
        final: bool | None = None,
        unresolved: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> FailuresSchema:
        """Failed attempts, newest first: {failures, nextCursor}."""
        asked: dict[str, Any] = {"companyId": company_id, "jobName": job_name, "jobId": job_id, "final": final}
        more = {"unresolved": unresolved or None, "limit": limit, "cursor": cursor}
        return await self._wire.get(FailuresSchema, f"{_ADMIN}/failures", **asked, **more, enveloped=True)

    async def failure(self, failure_id: str) -> FailureSchema:
        """Return one failed attempt, with its stack trace."""
        return await self._wire.get(FailureSchema, f"{_ADMIN}/failures/{_failure(failure_id)}", enveloped=True)

    async def retry_failure(self, failure_id: str) -> RetrySchema:
        """Queue the job of a failed attempt again, which resolves the failure."""
        return await self._wire.post(
            RetrySchema, f"{_ADMIN}/retry", {"failureId": _failure(failure_id)}, enveloped=True
        )

    # -- queues ------------------------------------------------------------------------------------

    async def queues(self) -> QueuesSchema:
        """Every queue of the application, and all others that hold jobs or are paused: {queues}."""
        return await self._wire.get(QueuesSchema, "/api/v1/queues")

    async def history(self, minutes: int = 60) -> HistorySchema:
        """What each queue did, and its lag, minute by minute, oldest first: {minutes, queues}."""
        return await self._wire.get(HistorySchema, "/api/v1/queues/history", minutes=minutes)

    async def doing(self) -> DoingSchema:
        """Every worker with its running jobs, earliest start first: {workers, more}."""
        return await self._wire.get(DoingSchema, "/api/v1/workers")

    async def switch(self, queue: str, *, paused: bool) -> SwitchedSchema:
        """Pause or resume a queue for the whole fleet; `known` is false if it is neither declared nor in use."""
        verb = "pause" if paused else "resume"
        return await self._wire.post(SwitchedSchema, f"/api/v1/queues/{_segment(queue, 'queue')}/{verb}")

    async def queue_health(self, queue: str | None = None) -> QueueHealthSchema:
        """The health of one queue, as GET /api/admin/queue/health returns it."""
        return await self._wire.get(QueueHealthSchema, f"{_ADMIN}/health", queue=queue, enveloped=True)

    async def health(self) -> HealthSchema:
        """Health of the store and the fleet: job counts, failures, queues, workers, and warnings."""
        return await self._wire.get(HealthSchema, "/api/v1/health")

    async def metrics(self) -> bytes:
        """The metrics of the whole fleet in Prometheus's text format."""
        return (await self._wire.send("GET", "/metrics")).content

    async def prune(self) -> PrunedSchema:
        """Apply the retention policies now: {removed}, counts by kind."""
        return await self._wire.post(PrunedSchema, f"{_ADMIN}/prune", enveloped=True)

    # -- schedules ---------------------------------------------------------------------------------

    async def schedules(self) -> SchedulesSchema:
        """Every schedule with its next tick and last run: {schedules}."""
        return await self._wire.get(SchedulesSchema, "/api/v1/schedules")

    async def runs(self, name: str | None = None, *, limit: int = 50) -> RunsSchema:
        """Runs of schedules, the latest first: {runs}."""
        return await self._wire.get(RunsSchema, "/api/v1/schedules/runs", name=name, limit=limit)

    async def pause_schedule(self, name: str) -> SchedulePausedSchema:
        """Pause a schedule: no tick of it fires, on any machine."""
        return await self._wire.post(SchedulePausedSchema, f"/api/v1/schedules/{_segment(name, 'schedule')}/pause")

    async def resume_schedule(self, name: str) -> ScheduleResumedSchema:
        """Resume a paused schedule with its next tick; ticks that were due meanwhile are skipped."""
        return await self._wire.post(ScheduleResumedSchema, f"/api/v1/schedules/{_segment(name, 'schedule')}/resume")

    async def run_schedule(self, name: str) -> ScheduleRunSchema:
        """Enqueue the job of a schedule now, outside its timetable."""
        return await self._wire.post(ScheduleRunSchema, f"/api/v1/schedules/{_segment(name, 'schedule')}/run")


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _unique(unique: Unique) -> dict[str, Any]:
    given = {"policy": unique.policy, "seconds": unique.seconds, "key": unique.key}
    return _given(given | {"onConflict": unique.on_conflict.value})


def _dead(
    ids: Sequence[JobId] | None,
    type: str | None,
    queue: str | None,
    company_id: str | None,
    reason: str | None,
    dry_run: bool,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    which = _given({"ids": ids and list(ids), "type": type, "queue": queue, "companyId": company_id, "reason": reason})
    if ids is not None and not ids:
        which["ids"] = [""]  # no job: an empty list must not mean all
    return which | _given({"all": not which or None, "dryRun": dry_run, "limit": limit, "cursor": cursor})


def _job(job_id: JobId) -> str:
    """Return the path of a job; raises JobNotFound for a malformed id, which could change the path."""
    if not is_uuid(job_id):
        raise JobNotFound(f"no job has the id {job_id}; retention may have removed it")
    return f"{_QUEUE}/{job_id}"


def _failure(failure_id: str) -> str:
    if not is_uuid(failure_id):
        raise JobNotFound(f"no failure has the id {failure_id}; retention may have removed it")
    return failure_id


def _segment(name: str, what: str) -> str:
    """Quote a name as one part of a path; dots too, which could change the path."""
    return quote(checked_name(name, what), safe="").replace(".", "%2E")
