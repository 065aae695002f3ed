"""Many clients of /api/v1/events, without a library in between: each is a socket and what it has heard."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import time
from collections.abc import Iterator

RECEIVE_BYTES = 65_536
SPARE_FILES = 500
"""Files that are open besides the clients' sockets, on either side."""


def most_clients(wanted: int) -> int:
    """As many as the limit on open files lets be, at most `wanted`; the limit is raised as far as it goes."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return min(wanted, most - SPARE_FILES)


class Listeners:
    """Many clients with event streams from one server."""

    def __init__(self, port: int, token: str, query: str = "") -> None:
        self._port = port
        self._request = (
            f"GET /api/v1/events{query} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {token}\r\n\r\n".encode()
        )
        self.sockets: dict[int, socket.socket] = {}
        self._heard: dict[int, bytes] = {}
        self._poll = select.epoll()

    def __len__(self) -> int:
        return len(self.sockets)

    def open(self, count: int, *, receive_bytes: int | None = None) -> None:
        """Connect and ask; the answers are not waited for."""
        for _ in range(count):
            client = socket.socket()
            if receive_bytes is not None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            client.settimeout(20)
            client.connect(("127.0.0.1", self._port))
            client.sendall(self._request)
            client.setblocking(False)
            number = client.fileno()
            self.sockets[number], self._heard[number] = client, b""
            self._poll.register(number, select.EPOLLIN)

    def until_all_heard(self, what: bytes, seconds: float) -> float:
        """Read until each has heard it since the last call; how long it took."""
        began = time.monotonic()
        missing = set(self.sockets)
        while missing:
            left = began + seconds - time.monotonic()
            assert left > 0, f"{len(missing):,} of {len(self):,} have not heard {what!r} within {seconds:g} s"
            for number, _ in self._poll.poll(left, 4_096):
                heard = self.sockets[number].recv(RECEIVE_BYTES)
                assert heard, f"the server hung up after {self._heard[number]!r}"
                self._heard[number] = (self._heard[number] + heard)[-1_000:]
                if number in missing and what in self._heard[number]:
                    missing.discard(number)
                    self._heard[number] = b""
        return time.monotonic() - began

    def drop(self) -> None:
        """All at once."""
        for client in self.sockets.values():
            client.close()
        self.sockets.clear()
        self._heard.clear()

    def close(self) -> None:
        self.drop()
        self._poll.close()


@contextlib.contextmanager
def listeners(port: int, token: str, query: str = "") -> Iterator[Listeners]:
    made = Listeners(port, token, query)
    try:
        yield made
    finally:
        made.close()
