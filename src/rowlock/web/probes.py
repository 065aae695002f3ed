"""/healthz, /readyz and /metrics: what other machines look at."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from rowlock.app import Rowlock
from rowlock.errors import StoreError
from rowlock.observe.metrics import exposition
from rowlock.web import models
from rowlock.web.answer import answer
from rowlock.web.guard import FleetViewer
from rowlock.web.openapi import fails
from rowlock.web.problem import Problem

_READY_SECONDS = 3.0

router = APIRouter(tags=["probes"])


@router.get("/healthz", response_model=models.StateTold, summary="Does the process answer?")
async def healthz() -> Response:
    return answer({"status": "ok"})


@router.get("/readyz", response_model=models.StateTold, responses=fails(503), summary="Can it do its work?")
async def readyz(request: Request) -> Response:
    """503 while the database is away or not migrated; what is wrong with it is in the server's log."""
    app: Rowlock = request.app.state.rowlock
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await app.store.check_schema()
    except (StoreError, TimeoutError):
        raise Problem("not_ready", "the database is away, or not migrated") from None
    return answer({"status": "ready"})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    summary="Metrics of the whole fleet, for Prometheus",
)
async def metrics(request: Request, caller: FleetViewer) -> Response:
    app: Rowlock = request.app.state.rowlock
    headers = {"content-type": CONTENT_TYPE_LATEST, "cache-control": "no-store"}
    return Response(await exposition(app.store), headers=headers)
