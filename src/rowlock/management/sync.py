"""Outbound sync: list and monitor integrations, and send operations."""

from __future__ import annotations

from typing import Any

from rowlock.jobs.new_jobs import Options
from rowlock.management.jobs import Jobs
from rowlock.management.schemas.jobs import EnqueuedSchema
from rowlock.management.schemas.sync import IntegrationSchema, IntegrationsSchema, SyncMonitorSchema, SyncStatsSchema
from rowlock.storage.access import RequestAnswer


class Sync(Jobs):
    """Queries and commands about integrations; with a company, about that company's jobs."""

    async def integrations(self) -> IntegrationsSchema:
        """Every integration with its operations: {integrations}."""
        found = sorted(self._app.integrations.items())
        return IntegrationsSchema(integrations=[IntegrationSchema.of(each) for _, each in found])

    async def sync_stats(self, integration: str) -> SyncStatsSchema:
        """Job counts of an integration: {pending, processing, failed (to retry), dead, completed24h}."""
        found = await self._app.integrations.named(integration).stats(self._company_id)
        return SyncStatsSchema.model_validate(found)

    async def sync_monitor(self, integration: str) -> SyncMonitorSchema:
        """The state of an integration: job counts, recent failures, mean time, lag, and use of its rate limits."""
        found = await self._app.integrations.named(integration).monitor(self._company_id)
        return SyncMonitorSchema.of(found, self._redact)

    async def sync_send(
        self,
        integration: str,
        operation: str,
        payload: dict[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        company_id: str | None = None,
        reserved: RequestAnswer | None = None,
    ) -> EnqueuedSchema:
        """Send an operation; return its job, and whether this call `created` it.

        With a `reserved` id (see `control.requests`), a second try returns the job of the first.
        """
        given = {} if payload is None else payload
        self._check_company(company_id, given, None)
        company = self._company_id or company_id
        chosen = self._app.integrations.named(integration).options(operation, priority=priority, company_id=company)
        type_name = chosen.pop("type_name")
        options = Options(delay_seconds=delay_seconds, company_id=company, **chosen)
        return await self._submitted(type_name, given, options, reserved)
