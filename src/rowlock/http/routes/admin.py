"""/api/admin/queue: health, failures, retry and prune for administrators, answered as {success, data}."""

from __future__ import annotations

from fastapi import APIRouter

from rowlock.http.endpoint_routes import derive
from rowlock.management import ManagementService

router = APIRouter()

derive(
    router,
    ManagementService.retry_failure,
    ManagementService.queue_health,
    ManagementService.failures,
    ManagementService.failure,
    ManagementService.prune,
)
