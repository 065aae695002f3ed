"""/api/v1/events: changes of jobs, imports and queues as server-sent events."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rowlock.http.events.event_stream import EventStream
from rowlock.http.events.subscriber import Subscriber, Wants
from rowlock.http.middleware.auth import Viewer
from rowlock.management.schemas.base import Name

_ALIVE_SECONDS = 15.0
_STUCK_SECONDS = 30.0
_AGAIN_MS = 2_000


router = APIRouter(prefix="/api/v1", tags=["events"])


@router.get(
    "/events",
    response_class=Response,
    responses={
        200: {
            "description": "Events, until the client disconnects.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
    summary="Listen to changes",
)
async def events(
    request: Request,
    caller: Viewer,
    queue: Annotated[Name | None, Query(description="Only jobs of this queue.")] = None,
    type: Annotated[
        Name | None, Query(description="Only jobs of this type; `name.*`: all types with this prefix.")
    ] = None,
    job: Annotated[str | None, Query(max_length=64, description="Only the job with this id.")] = None,
    import_id: Annotated[
        str | None, Query(alias="import", max_length=64, description="Only the import with this id.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="Continue after this event.", max_length=100)] = None,
) -> Response:
    """Server-sent events from every process and machine.

    `ready` comes first; `job` has the state of a job that changed, `import` that of an import, `queue` the counts of
    a queue; `gap` means that more has changed than the stream sends: read the data again. Send the last `id` as
    `Last-Event-ID` to continue an earlier connection; an event may then arrive twice.
    """
    hub: EventStream = request.app.state.hub
    wants = Wants(caller.token.company_id, queue, type, job and job.lower(), import_id and import_id.lower())
    return EventStreamResponse(hub, await hub.join(caller.token.id, wants, last_event_id))


class EventStreamResponse(Response):
    """Sends a subscriber's events until it disconnects, its token ends, or it does not read for 30 s."""

    media_type = "text/event-stream"

    def __init__(self, hub: EventStream, listener: Subscriber) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._hub = hub
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(self._wait_for_leave(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, b"retry: %d\n\n" % _AGAIN_MS)
            await self._tell(send)
        except (TimeoutError, OSError):
            pass  # the client is gone or does not read
        finally:
            leaving.cancel()
            self._hub.leave(self._listener)

    async def _tell(self, send: Send) -> None:
        listener = self._listener
        while not listener.over:
            try:
                async with asyncio.timeout(_ALIVE_SECONDS):
                    await listener.news.wait()
            except TimeoutError:
                await self._send(send, self._hub.sign_of_life())
                continue
            if data := listener.take():
                await self._send(send, data)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(_STUCK_SECONDS):
            await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _wait_for_leave(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._listener.end()
