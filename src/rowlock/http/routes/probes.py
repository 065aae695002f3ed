"""/healthz, /readyz and /metrics: probes, and metrics for Prometheus."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from rowlock.app import Rowlock
from rowlock.errors import StoreError
from rowlock.http.json_response import answer
from rowlock.http.middleware.auth import FleetViewer
from rowlock.http.openapi import fails
from rowlock.http.problem import Problem
from rowlock.management.schemas.fleet import StateSchema
from rowlock.observe import logs

_READY_SECONDS = 3.0
_TRUSTED_SECONDS = 1.0


router = APIRouter(tags=["probes"])


@router.get("/healthz", response_model=StateSchema, summary="Liveness")
async def healthz() -> Response:
    return answer(StateSchema(status="ok"))


@router.get("/readyz", response_model=StateSchema, responses=fails(503), summary="Readiness")
async def readyz(request: Request) -> Response:
    """503 while the database is unavailable or not migrated; the server's log has the reason."""
    state = request.app.state
    until, task = getattr(state, "ready", (0.0, None))
    if task is None or (task.done() and time.monotonic() > until):
        task = asyncio.create_task(_ready(state.rowlock))
        state.ready = time.monotonic() + _TRUSTED_SECONDS, task  # needs no token: at most one check per second
    if not await asyncio.shield(task):
        raise Problem("not_ready", "the database is not available or not migrated")
    return answer(StateSchema(status="ready"))


async def _ready(app: Rowlock) -> bool:
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await app.store.check_schema()
    except (StoreError, TimeoutError) as error:
        logs.get().warning("http.not_ready", reason=str(error) or f"no answer within {_READY_SECONDS:g} seconds")
        return False
    return True


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    summary="Metrics of the whole fleet, for Prometheus",
)
async def metrics(caller: FleetViewer) -> Response:
    headers = {"content-type": CONTENT_TYPE_LATEST, "cache-control": "no-store"}
    return Response(await caller.management.metrics(), headers=headers)
