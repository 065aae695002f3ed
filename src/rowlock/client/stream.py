"""Server-sent events, resumed after a broken connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, NamedTuple

import httpx
import orjson

from rowlock.client.wire import Wire, failure, pause_seconds
from rowlock.errors import RequestFailed, RowlockError

FAILURES_MAX = 8  # connections in a row without an event
_SILENCE_SECONDS = 45.0  # a server sends a keep-alive every 15 s
_STEADY_SECONDS = 10.0  # a connection that lasted longer counts as good, even without events
_LINE_BYTES_MAX = 1_048_576
_MARK = ""  # not an event: all events up to its id have been sent


class Event(NamedTuple):
    """An event: `job`, `import`, `queue`, `ready` (the first) or `gap` (events are missing); resume from its id."""

    kind: str
    data: dict[str, Any]
    id: str


async def events(
    wire: Wire, path: str, asked: Mapping[str, str], last_event_id: str | None = None
) -> AsyncGenerator[Event]:
    """Yield events until the caller stops; after a broken connection, reconnect and resume where it ended.

    Raises if the server refuses, or after FAILURES_MAX connections in a row without an event.
    """
    failures = 0
    while True:
        headers = {"accept": "text/event-stream"} | ({"last-event-id": last_event_id} if last_event_id else {})
        timeout = httpx.Timeout(wire.timeout_seconds, read=_SILENCE_SECONDS)
        began = time.monotonic()
        broken: RowlockError = RequestFailed(f"{wire.url} ends the events again and again", code="events_ended")
        try:
            async with wire.stream(path, params=asked, headers=headers, timeout=timeout) as answer:
                if answer.is_success:
                    async for event in _parsed(answer.aiter_bytes()):
                        last_event_id = event.id or last_event_id
                        if event.kind == _MARK:
                            continue
                        failures = failures if event.kind == "ready" else 0
                        yield event._replace(id=last_event_id or "")
                else:
                    await answer.aread()
                    broken = failure(answer)
                    if answer.status_code < 500 and answer.status_code != 429:
                        raise broken
        except httpx.RequestError as error:
            broken = wire.unreachable(error)
        failures = 1 if time.monotonic() - began > _STEADY_SECONDS else failures + 1
        if failures >= FAILURES_MAX:
            raise broken
        await asyncio.sleep(pause_seconds(failures))


async def _parsed(chunks: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    """Parse events. Only a line feed ends a line: other line separators of Unicode may be in the data."""
    rest = b""
    fields: dict[str, str] = {}
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            raise RequestFailed("the server sent an event that is too long", code="not_rowlock")
        for line in lines:
            if line.strip():
                name, _, value = line.decode("utf-8", "replace").rstrip("\r").partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            if "data" in fields:
                yield Event(fields.get("event", "message"), _data(fields["data"]), fields.get("id", ""))
            elif "id" in fields:
                yield Event(_MARK, {}, fields["id"])
            fields = {}


def _data(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RequestFailed("the server sent an event that is not JSON", code="not_rowlock") from None
