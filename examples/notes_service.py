"""A tiny REST service to try the sync with: notes, in memory. It wants a token, and takes ten calls a second.

    uvicorn notes_service:service --app-dir examples --port 9000

| call                   | answer                                                            |
| ---------------------- | ----------------------------------------------------------------- |
| PUT /notes/{name}      | 200 with the note; the same name again replaces it                |
| POST /notes/batch      | 200 with one result per note: {"name", "ok"} or {"name", "error"} |
| GET /notes             | 200 with all of them                                              |
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Any
from urllib.parse import unquote

TOKEN = "notes-token"  # noqa: S105  # of the example, and no secret
CALLS_PER_SECOND = 10
NOTES: dict[str, dict[str, Any]] = {}
_calls: deque[float] = deque(maxlen=CALLS_PER_SECOND)


async def service(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The ASGI application."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    status, answer, more = _answer(scope["method"], scope["raw_path"].decode(), headers, body)
    sent = [(b"content-type", b"application/json"), *((name.encode(), value.encode()) for name, value in more.items())]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def _answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
    if headers.get("authorization") != f"Bearer {TOKEN}":
        return 401, {"error": "who are you?"}, {}
    now = time.monotonic()
    if len(_calls) == CALLS_PER_SECOND and now - _calls[0] < 1:
        return 429, {"error": "too many calls"}, {"retry-after": "1"}
    _calls.append(now)
    match method, path.strip("/").split("/"):
        case "GET", ["notes"]:
            return 200, NOTES, {}
        case "POST", ["notes", "batch"]:
            return 200, [_keep(note.pop("name"), note) for note in json.loads(body)], {}
        case "PUT", ["notes", name]:
            _keep(unquote(name), json.loads(body))
            return 200, NOTES[unquote(name)], {}
    return 404, {"error": "no such place"}, {}


def _keep(name: str, note: dict[str, Any]) -> dict[str, Any]:
    if any(len(str(value)) > 1_000 for value in note.values()):
        return {"name": name, "error": "a note has at most 1000 characters"}
    NOTES.setdefault(name, {}).update(note)
    return {"name": name, "ok": True}
