"""Diagnostic jobs: they change no data and show that the queue works."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from backoffice.application import Criticality, app
from rowlock import Job, Unique

_STEP_SECONDS = 0.5


@app.job("healthPing", priority=Criticality.DIAGNOSTIC.value, unique=Unique.none())
async def health_ping(job: Job) -> dict[str, Any]:
    """Diagnostic: proves that a worker takes jobs and that their results are recorded."""
    return {"pong": True, "at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}


@app.job("demo.sleep")
async def demo_sleep(job: Job, seconds: Annotated[float, Field(ge=0, le=3_600)] = 1.0) -> dict[str, Any]:
    """For experiments: runs for this long, and reports its progress."""
    slept = 0.0
    while slept < seconds:
        step = min(_STEP_SECONDS, seconds - slept)
        await asyncio.sleep(step)
        slept += step
        job.progress(int(100 * slept / seconds), f"slept {slept:.1f} of {seconds:.1f} s")
    return {"slept": slept}
