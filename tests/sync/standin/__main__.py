"""`python -m sync.standin [port]`: serve the stand-in on loopback; the first line says where."""

from __future__ import annotations

import logging
import socket
import sys
import time

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sync.standin.application import Application


class Protocol(HttpToolsProtocol):
    """Lets the application see when a request arrived, and cut its connection."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: dict[str, object] = self.scope  # type: ignore[assignment]
        scope["arrived"] = time.monotonic()
        scope["transport"] = self.transport


def main() -> None:
    logging.getLogger("uvicorn.error").disabled = True  # an answer that was cut short on purpose is no error
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), backlog=512)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        Application(), http=Protocol, loop="uvloop", lifespan="off", access_log=False, log_level="critical"
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
