"""Outbound sync through a server."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson

from rowlock.client.wire import Wire
from rowlock.errors import IntegrationNotFound, OperationNotFound
from rowlock.jobs.payload import encode
from rowlock.jobs.registry import checked_name
from rowlock.management.schemas.jobs import EnqueuedSchema
from rowlock.management.schemas.sync import IntegrationsSchema, SyncMonitorSchema, SyncStatsSchema

_SYNC = "/api/v1/sync"
_PAYLOAD_BYTES_MAX = 64 * 1_048_576  # no server accepts more; each has its own limit


class Sync:
    """The methods of `rowlock.management.ManagementService` about integrations, called on a server."""

    _wire: Wire

    async def integrations(self) -> IntegrationsSchema:
        """Every integration with its operations: {integrations}."""
        return await self._wire.get(IntegrationsSchema, _SYNC)

    async def sync_stats(self, integration: str) -> SyncStatsSchema:
        """Job counts of an integration: {pending, processing, failed (to retry), dead, completed24h}."""
        return await self._wire.get(SyncStatsSchema, f"{_SYNC}/{_integration(integration)}/stats")

    async def sync_monitor(self, integration: str) -> SyncMonitorSchema:
        """The state of an integration: job counts, recent failures, mean time, lag, and use of its rate limits."""
        return await self._wire.get(SyncMonitorSchema, f"{_SYNC}/{_integration(integration)}/monitor")

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
        path = f"{_SYNC}/{_integration(integration)}/{_operation(operation)}"
        text = encode({} if payload is None else payload, f"{integration}.{operation}", _PAYLOAD_BYTES_MAX)
        given = {"priority": priority, "delaySeconds": delay_seconds or None, "companyId": company_id}
        body = {"payload": orjson.Fragment(text)} | {name: one for name, one in given.items() if one is not None}
        return await self._wire.post(EnqueuedSchema, path, body)


def _integration(name: str) -> str:
    """Quote a name for a path; raises IntegrationNotFound for a slash, which would change the path."""
    if "/" in checked_name(name, "integration"):
        raise IntegrationNotFound(f"no integration is called {name!r}")
    return _segment(name)


def _operation(name: str) -> str:
    if "/" in checked_name(name, "operation"):
        raise OperationNotFound(f"no operation is called {name!r}")
    return _segment(name)


def _segment(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")  # dots could change the path, too
