"""Outbound sync: list and monitor integrations, and send operations."""

from __future__ import annotations

from typing import Any

from rowlock.jobs.new_jobs import Options
from rowlock.management.endpoint import get, post
from rowlock.management.jobs import Jobs
from rowlock.management.parameters import IntegrationParameter, OperationParameter
from rowlock.management.schemas.jobs import EnqueuedSchema
from rowlock.management.schemas.requests import SyncRequest
from rowlock.management.schemas.sync import IntegrationSchema, IntegrationsSchema, SyncMonitorSchema, SyncStatsSchema
from rowlock.storage.access import RequestAnswer


class Sync(Jobs):
    """Queries and commands about integrations; with a company, about that company's jobs."""

    @get("/api/v1/sync", "sync", "List integrations")
    async def integrations(self) -> IntegrationsSchema:
        """With their operations, and how to enable those that are disabled."""
        found = sorted(self._app.integrations.items())
        return IntegrationsSchema(integrations=[IntegrationSchema.of(each) for _, each in found])

    @get("/api/v1/sync/{integration}/stats", "sync", "Count the jobs of an integration", fails=(404,))
    async def sync_stats(self, integration: IntegrationParameter) -> SyncStatsSchema:
        """By state; `failed` are those that wait for another attempt."""
        found = await self._app.integrations.named(integration).stats(self._company_id)
        return SyncStatsSchema.model_validate(found)

    @get("/api/v1/sync/{integration}/monitor", "sync", "Get the state of an integration", fails=(404,))
    async def sync_monitor(self, integration: IntegrationParameter) -> SyncMonitorSchema:
        """Counts, the most recent failures, the duration and waiting time of jobs, and the remaining calls per limit.

        A company sees its own jobs, and no limits.
        """
        found = await self._app.integrations.named(integration).monitor(self._company_id)
        return SyncMonitorSchema.of(found, self._redact)

    @post(
        "/api/v1/sync/{integration}/{operation}",
        "sync",
        "Send an operation",
        fails=(404, 409, 413),
        status=201,
        body=SyncRequest,
    )
    async def sync_send(
        self,
        integration: IntegrationParameter,
        operation: OperationParameter,
        payload: dict[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        company_id: str | None = None,
        reserved: RequestAnswer | None = None,
    ) -> EnqueuedSchema:
        """The job is durable when this returns. If the operation has a key, and a job with that key waits or runs, that
        job takes over the payload and is returned with status 200. A body without `payload` is the payload
        itself.

        The result has `created`: whether this call created the job. With a `reserved` id (see `control.requests`), a
        second try returns the job of the first.
        """
        given = {} if payload is None else payload
        self._check_company(company_id, given, None)
        company = self._company_id or company_id
        chosen = self._app.integrations.named(integration).options(operation, priority=priority, company_id=company)
        type_name = chosen.pop("type_name")
        options = Options(delay_seconds=delay_seconds, company_id=company, **chosen)
        return await self._submitted(type_name, given, options, reserved)
