"""I18, event streams: clients that never read cost little and are closed; thousands connect and disconnect at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from faults.databases import Database
from faults.processes import Fleet, Tree
from faults.until import until
from hostile.listeners import listeners, most_clients
from rowlock.clock import StoreClock
from rowlock.control import tokens
from rowlock.settings import load
from rowlock.storage.access import Role
from rowlock.storage.open import open_store
from rowlock.tokens import new_token
from web.malformed import MALFORMED
from web.wire import not_refused

START_SECONDS = 60.0
MEGABYTE = 1_048_576
HELD_MAX = 256
BURSTS_MAX = 100


class Server:
    """A server in a process of its own, and a token for it."""

    def __init__(self, tree: Tree, token: str) -> None:
        self.tree = tree
        self.token = token
        told = until(lambda: tree.events("serving"), START_SECONDS, tree.tail)[0]
        self.url, self.port = str(told["url"]), int(told["port"])
        self.process = psutil.Process(tree.pid)
        self.http = httpx.Client(base_url=self.url, timeout=20, headers={"authorization": f"Bearer {token}"})

    def listening(self) -> dict[str, Any]:
        """Who listens, and what is held for them."""
        before = len(self.tree.events("listening"))
        os.kill(self.tree.pid, signal.SIGUSR1)
        return until(lambda: self.tree.events("listening")[before:], 30, self.tree.tail)[0]

    def enqueue(self, count: int = 1) -> None:
        for _ in range(count):
            self.http.post("/api/v1/queue/enqueue", json={"type": "note"}).raise_for_status()

    def answers(self) -> float:
        """How long the server works until a request is answered, in seconds of its event loop's processor time.

        Other processes may take the processor meanwhile; they do not count. The client waits for 20 seconds at most.
        """
        began = self._worked()
        assert self.http.get("/healthz").status_code == 200
        return self._worked() - began

    def _worked(self) -> float:
        return int(Path(f"/proc/{self.tree.pid}/schedstat").read_text().split()[0]) / 1e9

    @property
    def memory(self) -> float:
        """In megabytes."""
        return self.process.memory_info().rss / MEGABYTE


Serve = Callable[..., Server]


def add_token(database: Database) -> str:
    async def add() -> str:
        text, token = new_token("listener", Role.ADMIN)
        store = open_store(load(database_url=database.url), StoreClock())
        await store.open()
        await tokens.add(store, token)
        await store.close()
        return text

    return asyncio.run(add())


@pytest.fixture
def serve(database: Database, fleet: Fleet) -> Iterator[Serve]:
    """Starts servers on the database."""
    servers: list[Server] = []

    def start(**environment: str) -> Server:
        token = add_token(database)
        tree = fleet.start("hostile.serving", database.url, **{"ROWLOCK_HTTP_EVENT_MS": "100"} | environment)
        servers.append(server := Server(tree, token))
        with listeners(server.port, token) as first:  # what is opened once is open before anyone counts
            first.open(1)
            first.until_all_heard(b"event: ready", START_SECONDS)
            server.enqueue()
            first.until_all_heard(b"event: job", START_SECONDS)
        until(lambda: server.listening()["count"] == 0, START_SECONDS, tree.tail)
        return server

    yield start
    for server in servers:
        server.http.close()


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1_000, id="short"),
        pytest.param(10_000, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_clients_that_listen_come_and_go_by_the_thousand(
    serve: Serve, database: Database, count: int, figure: Callable[[str], None]
) -> None:
    clients = most_clients(count)
    note = "" if clients == count else f" (the limit on open files lets {clients:,} of {count:,} be)"
    server = serve()
    before, files = server.memory, server.process.num_fds()
    with listeners(server.port, server.token, "?type=note") as many:
        began = time.monotonic()
        many.open(clients)
        many.until_all_heard(b"event: ready", 120)
        opened = time.monotonic() - began
        assert server.listening()["count"] == clients, note
        each = (server.memory - before) / clients * 1_024
        server.enqueue()
        told = many.until_all_heard(b"event: job", 60)
        busy = server.answers()
        dropped = time.monotonic()
        many.drop()
        after = server.answers()
        until(lambda: server.listening()["count"] == 0, 60, server.tree.tail)
        until(lambda: server.process.num_fds() <= files + 2, 60, lambda: server.process.num_fds() - files)
        gone, left = time.monotonic() - dropped, server.memory
        many.open(clients)
        many.until_all_heard(b"event: ready", 120)
        many.drop()
        until(lambda: server.listening()["count"] == 0, 60, server.tree.tail)
    figure(
        f"{database.kind}: {clients:,} clients{note} in {opened:.1f} s, {each:.0f} kB each; an event to all in "
        f"{told:.2f} s; an answer meanwhile {busy * 1_000:.0f} ms, when all leave {after * 1_000:.0f} ms; "
        f"all let go in {gone:.1f} s; memory {before:.0f} MB before, {left:.0f} MB after, {server.memory:.0f} MB "
        "after as many again"
    )
    assert each < 200, f"{each:.0f} kB for each client"
    assert server.memory < left * 1.2, "who comes again takes more"
    assert busy < 1
    assert after < 1
    assert server.answers() < 1
    assert server.tree.events("http.failed") == []


@pytest.mark.parametrize("bursts", [pytest.param(2, id="short"), pytest.param(10, id="long", marks=pytest.mark.long)])
def test_many_changes_for_many_clients_do_not_stop_the_server(
    serve: Serve, figure: Callable[[str], None], database: Database, bursts: int
) -> None:
    server = serve()
    with listeners(server.port, server.token) as many:
        many.open(1_000)
        many.until_all_heard(b"event: ready", 60)
        slowest = 0.0
        for _ in range(bursts):
            fill(database, 200)
            slowest = max(slowest, *(server.answers() for _ in range(30)))
            many.until_all_heard(b"event:", 60)
    figure(f"{bursts * 200:,} changes sent to 1,000 clients; the slowest answer meanwhile {slowest * 1_000:.0f} ms")
    assert slowest < 1


def fill(database: Database, count: int) -> None:
    """Jobs from elsewhere."""

    async def add() -> None:
        from rowlock import Rowlock

        app = Rowlock(settings=load(database_url=database.url), allow_unknown_types=True)
        async with app:
            await app.enqueue_many([("note", {}) for _ in range(count)])

    asyncio.run(add())


def never_read(server: Server, database: Database, clients: int = 50) -> dict[str, Any]:
    """The most that the server held for clients with small windows that never read, until it held too much or
    discarded what it held, twice.
    """
    with listeners(server.port, server.token) as many, listeners(server.port, server.token) as one:
        many.open(clients, receive_bytes=2_048)
        one.open(1)
        one.until_all_heard(b"event: ready", 60)
        until(lambda: server.listening()["count"] == clients + 1, 60, server.tree.tail)
        last = most = server.listening()
        discarded = 0
        for _ in range(BURSTS_MAX):
            fill(database, 200)
            one.until_all_heard(b"event:", 60)
            now = server.listening()
            discarded += now["held_most"] < last["held_most"]
            last, most = now, max(most, now, key=lambda told: int(told["held_most"]))
            if discarded == 2 or most["held_most"] > HELD_MAX:
                return most | {"memory": server.memory}
    raise AssertionError(f"after {BURSTS_MAX} bursts the server held at most {most}")


def test_clients_that_never_read_are_not_kept_for_in_memory(
    serve: Serve, database: Database, figure: Callable[[str], None]
) -> None:
    server = serve()
    fill(database, 1)
    before = server.memory
    held = never_read(server, database)
    figure(f"50 clients that never read: {held['held']:,} events held, {held['memory'] - before:.0f} MB")
    assert HELD_MAX / 2 < held["held_most"] <= HELD_MAX
    assert held["memory"] - before < 60
    assert server.answers() < 1


def test_that_attack_notices_that_there_is_no_limit(serve: Serve, database: Database) -> None:
    server = serve(HOSTILE_MUTANT="endless")
    assert never_read(server, database, clients=5)["held_most"] > HELD_MAX


def test_what_is_malformed_is_refused_as_it_is_served(serve: Serve) -> None:
    """With the event loop that `rowlock serve` has, which has transports of its own."""
    server = serve(ROWLOCK_HTTP_HEADER_SECONDS="0.4", ROWLOCK_HTTP_BODY_SECONDS="0.4")
    assert asyncio.run(not_refused(server.port, MALFORMED)) == {}
    assert server.tree.events("http.failed") == []


def healthy(server: Server) -> bool:
    """Whether someone new is answered."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{server.url}/healthz", timeout=20).status_code == 200
    return False


def test_more_connections_than_files_are_survived(serve: Serve) -> None:
    server = serve(HOSTILE_FILES="200", ROWLOCK_HTTP_HEADER_SECONDS="1")
    with contextlib.ExitStack() as stack:
        for _ in range(400):  # they say nothing; those for which there is no file wait, or are turned away
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
        until(lambda: server.process.num_fds() >= 190, 60, server.process.num_fds)
        until(lambda: healthy(server), 60, server.tree.tail)  # though none of them has left
    until(lambda: server.process.num_fds() < 100, 60, server.process.num_fds)
    assert server.answers() < 1


def test_a_client_that_is_stuck_is_dropped(serve: Serve, database: Database) -> None:
    server = serve(HOSTILE_STUCK_SECONDS="1")
    files = server.process.num_fds()
    with listeners(server.port, server.token) as stuck, listeners(server.port, server.token) as healthy:
        stuck.open(20, receive_bytes=2_048)
        healthy.open(20)
        healthy.until_all_heard(b"event: ready", 60)
        deadline = time.monotonic() + 60
        while server.listening()["count"] > 20:
            assert time.monotonic() < deadline, server.listening()
            fill(database, 200)
            healthy.until_all_heard(b"event:", 60)
        until(lambda: server.process.num_fds() <= files + 20 + 2, 60, lambda: server.process.num_fds() - files)
        fill(database, 1)
        healthy.until_all_heard(b"event:", 60)
        assert server.listening()["count"] == 20
    assert server.answers() < 1
