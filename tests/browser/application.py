"""The application of these tests: the reference application, with jobs whose outcome a test decides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from backoffice import app
from rowlock import Call, Job, Permanent, RateLimit

__all__ = ["app"]


@app.job("invoice.send")
async def send_invoice(job: Job, number: int = 0, mended: str = "", reason: str = "") -> dict[str, Any]:
    """Fails immediately unless a file of that name exists, which stands for a fixed cause."""
    if not mended or not Path(mended).exists():
        raise Permanent(reason or "the mail server refuses our password")
    return {"sent": number}


@app.job("note")
async def note(job: Job, **said: Any) -> dict[str, Any]:
    """Takes anything, and gives it back; with a message, says that and goes on until it is cancelled."""
    if "message" in said:
        job.progress(50, str(said["message"]))
        await asyncio.sleep(3_600)
    return said


# Nobody listens there: what is sent fails, and is tried again.
crm = app.integration("crm", base_url="http://127.0.0.1:9", token="for-tests", limits=[RateLimit(100, per_seconds=10)])


@crm.operation("keep", key="note_{name}", about="{name}")
async def keep(call: Call, name: str, text: str) -> Any:
    """One note."""
    return (await call.put(f"/notes/{name}", {"text": text})).json
