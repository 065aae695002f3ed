"""A second integration in one small file: notes go to the tiny service of notes_service.py.

NOTES_TOKEN=notes-token rowlock up --app examples.notes:app
rowlock sync send --app examples.notes:app notes keep --payload '{"name": "a", "text": "hello"}'
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from rowlock import Call, Calls, Permanent, RateLimit, Rowlock, Update

app = Rowlock()
token = os.environ.get("NOTES_TOKEN")

notes = app.integration(
    "notes",
    base_url=os.environ.get("NOTES_URL", "http://127.0.0.1:9000"),
    token=token,
    disabled=None if token else "set NOTES_TOKEN",
    limits=[RateLimit(10, per_seconds=1)],
)


@notes.operation("keep", key="note_{name}", about="{name}")
async def keep(call: Call, name: str, text: str) -> Any:
    """One note. PUT under a name of ours does no harm when it is done twice."""
    fresh = call.fresh({"text": text})  # nothing, where a newer job has written the text
    if not fresh:
        return "superseded"
    return (await call.put(f"/notes/{quote(name, safe='')}", fresh)).json


@notes.operation("change", about="{name}", batch=50)
async def change(calls: Calls, updates: list[Update]) -> list[Any]:
    """Many notes in one call: {"name": ..., "properties": {...}}; each job is settled by its own result."""
    inputs = [{"name": update.subject} | update.properties for update in updates]
    results = (await calls.post("/notes/batch", inputs)).json
    return [result if "ok" in result else Permanent(result["error"]) for result in results]
