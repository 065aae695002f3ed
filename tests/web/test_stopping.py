"""Stopping the server: requests in progress are completed first, within the grace period."""

from __future__ import annotations

import asyncio

import pytest

from engine.running import Log
from rowlock.http.events.event_stream import EventStream
from web.site import SECONDS, Site
from web.wire import head, wire


async def test_a_request_that_is_being_answered_is_answered_first(site: Site) -> None:
    store = site.app.store
    with store.stalled("page"):
        stalled = store.next("page stalled")
        asking = asyncio.create_task(site.get("/api/v1/queue"))
        await stalled
        stopping = asyncio.create_task(stop(site))
        await refused(site)
        assert not stopping.done()
        assert not asking.done()
    answer = await asking
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    await stopping


async def test_one_that_takes_longer_than_the_grace_period_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.http.server._GRACE_SECONDS", 0.1)
    store = site.app.store
    with store.stalled("page"):
        stalled = store.next("page stalled")
        asking = asyncio.create_task(site.get("/api/v1/queue"))
        await stalled
        await stop(site)
        answer = await asking
        assert answer.status_code >= 500
        assert answer.headers["connection"] == "close"


async def test_idle_connections_and_listeners_do_not_hold_it_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.http.server._GRACE_SECONDS", 10 * SECONDS)
    async with wire(site.port) as idle, wire(site.port) as half, wire(site.port) as listener:
        await idle.send(head(site, path="/healthz"))
        assert await idle.answer() is not None
        await half.send(head(site, path="/healthz")[:-2])
        await listener.send(head(site, path="/api/v1/events"))
        await listener.reader.readuntil(b"event: ready")
        await stop(site)
        for line in (idle, half, listener):
            await line.closed()


@pytest.mark.parametrize("hangs", [False, True])
async def test_listeners_that_cannot_be_ended_do_not_keep_it_from_stopping(
    site: Site, log: Log, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr("rowlock.http.server._GRACE_SECONDS", 0.1)

    close = EventStream.close

    async def fails(hub: EventStream) -> None:
        monkeypatch.setattr(EventStream, "close", close)  # for the end of the application
        if hangs:
            await asyncio.Event().wait()
        raise OSError("token=c4n4ry")

    monkeypatch.setattr(EventStream, "close", fails)
    await stop(site)
    (line,) = [line for line in log.lines if line["event"] == "http.listeners_not_closed"]
    assert line["reason"] == ("TimeoutError" if hangs else "token=[REDACTED]")


async def stop(site: Site) -> None:
    """Stop serving, and wait until it has."""
    site._stop.set()
    async with asyncio.timeout(SECONDS):
        await site._serving


async def refused(site: Site) -> None:
    """Wait until nobody new is let in."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                async with wire(site.port):
                    await asyncio.sleep(0.01)
            except ConnectionRefusedError:
                return
