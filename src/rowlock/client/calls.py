"""The management service of a server, over HTTP: the names, parameters and results of `ManagementService`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import orjson

from rowlock.client.imports import Imports
from rowlock.client.remote import path_of, remote
from rowlock.client.stream import Event, events
from rowlock.client.wire import Wire
from rowlock.jobs.new_jobs import Options
from rowlock.jobs.payload import encode
from rowlock.jobs.policy import Unique
from rowlock.management import ManagementService, waiting
from rowlock.management.endpoint import endpoint_of
from rowlock.management.parameters import checked_integration, checked_operation
from rowlock.management.schemas.dead_letters import DiscardedSchema, RetriedSchema
from rowlock.management.schemas.jobs import EnqueuedSchema, JobSchema
from rowlock.storage.records import JobId

if TYPE_CHECKING:
    import httpx

_PAYLOAD_BYTES_MAX = 64 * 1_048_576  # no server accepts more; each has its own limit


class Client(Imports):
    """Client of one server, with a token: the endpoints of `ManagementService`.

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

    # -- endpoints whose parameters are sent as they are declared ----------------------------------

    job = remote(ManagementService.job)
    jobs = remote(ManagementService.jobs)
    timeline = remote(ManagementService.timeline)
    retry = remote(ManagementService.retry)
    cancel = remote(ManagementService.cancel)
    run_now = remote(ManagementService.run_now)
    stats = remote(ManagementService.stats)
    dead_letters = remote(ManagementService.dead_letters)
    dead_groups = remote(ManagementService.dead_groups)
    failures = remote(ManagementService.failures)
    failure = remote(ManagementService.failure)
    retry_failure = remote(ManagementService.retry_failure)
    queues = remote(ManagementService.queues)
    history = remote(ManagementService.history)
    doing = remote(ManagementService.doing)
    pause_queue = remote(ManagementService.pause_queue)
    resume_queue = remote(ManagementService.resume_queue)
    queue_health = remote(ManagementService.queue_health)
    health = remote(ManagementService.health)
    prune = remote(ManagementService.prune)
    schedules = remote(ManagementService.schedules)
    runs = remote(ManagementService.runs)
    pause_schedule = remote(ManagementService.pause_schedule)
    resume_schedule = remote(ManagementService.resume_schedule)
    run_schedule = remote(ManagementService.run_schedule)
    integrations = remote(ManagementService.integrations)
    sync_stats = remote(ManagementService.sync_stats)
    sync_monitor = remote(ManagementService.sync_monitor)

    # -- endpoints with a payload, a selection or another media type -------------------------------

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
        return await self._wire.post(EnqueuedSchema, endpoint_of(ManagementService.enqueue).path, body)

    async def wait(self, job_id: JobId, seconds: float) -> JobSchema:
        """Poll a job until it ends or `seconds` pass, and return it."""
        return await waiting.wait(self, job_id, seconds)

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
        return await self._wire.post(RetriedSchema, endpoint_of(ManagementService.retry_dead).path, given)

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
        return await self._wire.post(DiscardedSchema, endpoint_of(ManagementService.discard_dead).path, given)

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

    async def metrics(self) -> bytes:
        """The metrics of the whole fleet in Prometheus's text format."""
        return (await self._wire.send("GET", "/metrics")).content

    async def sync_send(
        self,
        integration: str,
        operation: str,
        payload: dict[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        company_id: str | None = None,
    ) -> EnqueuedSchema:
        """Send an operation; return its job, and whether this call `created` it."""
        names = {"integration": checked_integration(integration), "operation": checked_operation(operation)}
        path = path_of(endpoint_of(ManagementService.sync_send).path, names)
        text = encode({} if payload is None else payload, f"{integration}.{operation}", _PAYLOAD_BYTES_MAX)
        given = {"priority": priority, "delaySeconds": delay_seconds or None, "companyId": company_id}
        body = {"payload": orjson.Fragment(text)} | {name: one for name, one in given.items() if one is not None}
        return await self._wire.post(EnqueuedSchema, path, body)


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
