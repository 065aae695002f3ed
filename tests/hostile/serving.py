"""The HTTP API in a process of its own that tells, when it gets SIGUSR1, who listens and how much is kept for them.

    python -m hostile.serving DATABASE_URL

HOSTILE_STUCK_SECONDS  how long a client may take nothing before it is dropped
HOSTILE_FILES          how many files it may have open
HOSTILE_MUTANT=endless keeps everything for those who do not read
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from typing import Any

import uvloop

from rowlock import Job, Rowlock
from rowlock.http import connection
from rowlock.http.events import event_stream, subscriber
from rowlock.http.routes import events
from rowlock.http.server import address, bind, serve
from rowlock.observe import logs
from rowlock.settings import load

SEND_BYTES = 16_384

seconds = float(os.environ.get("HOSTILE_STUCK_SECONDS", "30"))
events._STUCK_SECONDS = seconds
connection._STUCK_SECONDS = seconds
if os.environ.get("HOSTILE_MUTANT") == "endless":
    subscriber._HELD_MAX = 1_000_000_000

streams: list[event_stream.EventStream] = []


def _found_again(make: Any) -> Any:
    def made(self: event_stream.EventStream, *given: Any) -> None:
        make(self, *given)
        streams.append(self)

    return made


event_stream.EventStream.__init__ = _found_again(event_stream.EventStream.__init__)  # type: ignore[method-assign]


def tell(**told: object) -> None:
    print(json.dumps(told), flush=True)


def tell_who_listens() -> None:
    (found,) = streams
    held = [listener.held for listener in found._listeners]
    tell(event="listening", count=found.listening, held=sum(held), held_most=max(held, default=0))


async def main(url: str) -> None:
    most = int(os.environ.get("HOSTILE_FILES", resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logs.configure("warning", "json")
    app = Rowlock(settings=load(database_url=url))

    @app.job("note")
    async def note(job: Job, **payload: Any) -> None: ...

    async with app:
        bound = bind("127.0.0.1", 0)
        # Or the system would keep megabytes for each client, and it would take long until one is seen to be slow.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell_who_listens)
        tell(event="serving", url=address(bound), port=bound.getsockname()[1])
        await serve(app, bound)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
