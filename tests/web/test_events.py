"""Server-sent events: every change of any process arrives once, and slow clients cost nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rowlock.control import tokens
from rowlock.http.events.event_stream import EventStream
from rowlock.http.events.subscriber import Wants
from rowlock.storage.access import Role
from rowlock.storage.records import Outcome, Progress, Settlement
from web.conftest import MakeSite, declare
from web.site import Site, problem

WORKER = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"
SECONDS = 60.0


class Stream:
    """What one client hears."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last_id = ""  # where a client would go on

    async def marked(self) -> str:
        """The next id that comes by itself, after the events that it is about."""
        async with asyncio.timeout(SECONDS):
            async for line in self._lines:
                if line.startswith("id: "):
                    self.last_id = line.removeprefix("id: ")
                    return self.last_id
        raise StopAsyncIteration

    async def event(self) -> tuple[str, dict[str, Any]]:
        """The next one: its kind and data."""
        found: dict[str, str] = {}
        async with asyncio.timeout(SECONDS):
            async for line in self._lines:
                if line:
                    name, _, value = line.partition(": ")
                    found[name] = value
                    self.last_id = found.get("id", self.last_id)
                elif "event" in found:
                    return found["event"], json.loads(found["data"])
                else:
                    found.clear()
        raise StopAsyncIteration

    async def job(self) -> dict[str, Any]:
        while True:
            kind, data = await self.event()
            if kind == "job":
                return data

    async def until(self, status: str) -> dict[str, Any]:
        while (data := await self.job())["status"] != status:
            pass
        return data


@asynccontextmanager
async def listening(site: Site, query: str = "", token: str = "viewer", **headers: str) -> AsyncIterator[Stream]:
    given = {"authorization": f"Bearer {site.tokens[token]}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    async with site.http.stream("GET", f"/api/v1/events{query}", headers=given) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer.aiter_lines())


@pytest.mark.every_store
async def test_the_life_of_a_job_is_told(site: Site) -> None:
    store = site.app.store
    async with listening(site) as stream:
        assert (await stream.event())[0] == "ready"
        job = await site.enqueue(companyId="acme")
        told = await stream.until("queued")
        assert (told["id"], told["type"], told["queue"], told["companyId"]) == (job["id"], "ping", "default", "acme")
        assert "payload" not in told
        await store.claim("default", WORKER, 1)
        assert (await stream.until("processing"))["lease"] == 1
        await store.progress(WORKER, [Progress(job["id"], 1, 40, "reading")])
        while (told := await stream.job())["progress"] != 40:
            pass
        assert told["message"] == "reading"
        await store.settle(WORKER, [Settlement(job["id"], 1, Outcome.SUCCEEDED)])
        assert (await stream.until("succeeded"))["id"] == job["id"]


@pytest.mark.every_store
async def test_what_another_process_does_arrives(site: Site, make_app: Any) -> None:
    other = await make_app()
    declare(other)
    async with listening(site) as stream:
        await stream.event()
        receipt = await other.enqueue("ping")
        assert (await stream.job())["id"] == receipt.job_id
        await other.work(drain=True)
        assert (await stream.until("succeeded"))["id"] == receipt.job_id


async def test_a_state_is_told_once(site: Site) -> None:
    async with listening(site, "?type=ping") as stream:
        await stream.event()
        first = await site.enqueue()
        assert (await stream.job())["id"] == first["id"]
        for _ in range(3):
            await site.app.store.next("changes")  # which sees the job again
        second = await site.enqueue()
        assert (await stream.job())["id"] == second["id"]


async def test_what_was_before_is_no_news(site: Site) -> None:
    await site.enqueue()
    async with listening(site, "?type=ping") as stream:
        await stream.event()
        second = await site.enqueue()
        assert (await stream.job())["id"] == second["id"]


async def test_a_fault_of_ours_is_not_the_end(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr("rowlock.http.events.event_stream._AWAY_SECONDS", 0.05)
    async with listening(site) as stream:
        await stream.event()
        site.app.store.refuse("changes", error=RuntimeError("a fault"))
        job = await site.enqueue()
        assert (await stream.job())["id"] == job["id"]


@pytest.mark.every_store
async def test_events_are_filtered(site: Site) -> None:
    wanted = await site.enqueue("open")
    async with (
        listening(site, "?queue=other") as by_queue,
        listening(site, "?type=mail") as by_type,
        listening(site, f"?job={wanted['id'].upper()}") as by_job,
    ):
        for stream in (by_queue, by_type, by_job):
            assert (await stream.event())[0] == "ready"
        await site.enqueue()
        mail = await site.enqueue("mail", payload={"to": "x"})
        other = await site.enqueue(queue="other")
        await site.post(f"/api/v1/queue/{wanted['id']}/cancel")
        assert (await by_queue.job())["id"] == other["id"]
        assert (await by_type.job())["id"] == mail["id"]
        assert await by_job.until("cancelled")


async def test_events_of_types_that_begin_alike_are_heard_together(make_site: MakeSite) -> None:
    site = await make_site(allow_unknown_types=True)
    async with listening(site, "?type=crm.*") as stream:
        assert (await stream.event())[0] == "ready"
        for name in ("crm", "crm.a", "crmx.a", "ping", "crm.b"):
            await site.enqueue(name)
        assert [(await stream.job())["type"] for _ in range(2)] == ["crm.a", "crm.b"]


async def test_a_companys_token_hears_of_its_own_jobs_only(site: Site) -> None:
    await site.add_token("acme", Role.VIEWER, "acme")
    async with listening(site, token="acme") as stream:
        assert (await stream.event())[0] == "ready"
        await site.enqueue(companyId="globex")
        await site.enqueue()
        await site.post("/api/v1/queues/default/pause")
        mine = await site.enqueue(companyId="acme")
        kind, told = await stream.event()
        assert (kind, told["id"]) == ("job", mine["id"])


@pytest.mark.every_store
async def test_counts_of_queues_are_told(site: Site) -> None:
    async with listening(site, "?queue=default") as stream:
        await site.enqueue()
        await site.post("/api/v1/queues/default/pause")
        while True:
            kind, told = await stream.event()
            if kind == "queue" and told["paused"]:
                break
        assert (told["name"], told["ready"]) == ("default", 1)


@pytest.mark.every_store
async def test_a_client_that_comes_back_hears_what_it_missed(site: Site) -> None:
    async with listening(site) as stream:
        await site.enqueue()
        await stream.job()
        last = await stream.marked()
    missed = [(await site.enqueue())["id"] for _ in range(3)]
    async with listening(site, last_event_id=last) as stream:
        heard: set[str] = set()
        while not set(missed) <= heard:
            heard.add((await stream.job())["id"])


async def test_who_is_cut_off_among_events_hears_them_again(site: Site) -> None:
    """An id follows its events: a client that did not receive it gets the events again."""
    async with listening(site) as stream:
        last = await stream.marked()
        ids = {receipt.job_id for receipt in await site.app.enqueue_many(("ping", {}) for _ in range(200))}
        await stream.job()  # one of them, and then the connection is gone
        assert stream.last_id == last
    async with listening(site, last_event_id=last) as stream:
        heard: set[str] = set()
        while not ids <= heard:
            heard.add((await stream.job())["id"])


async def test_two_who_come_back_together_both_hear_what_came_last(site: Site) -> None:
    async with listening(site) as stream:
        last = await stream.marked()
    async with listening(site, last_event_id=last) as first:
        await first.event()
        job = await site.enqueue()
        assert (await first.job())["id"] == job["id"]
        async with listening(site, last_event_id=last) as second:
            assert (await second.job())["id"] == job["id"]


async def test_who_comes_first_hears_what_happens_while_others_come(site: Site) -> None:
    async with listening(site) as first:
        assert (await first.event())[0] == "ready"
        job = await site.enqueue()
        async with listening(site), listening(site):
            assert (await first.job())["id"] == job["id"]


async def test_ids_tell_a_company_nothing_about_others(site: Site) -> None:
    await site.add_token("acme", Role.VIEWER, "acme")
    async with listening(site, token="acme") as stream:
        await stream.marked()
        await site.app.enqueue_many((("ping", {}) for _ in range(37)), company_id="globex")
        await site.enqueue(companyId="acme")
        await stream.job()
        assert (await stream.marked()).isdigit()


@pytest.mark.every_store
async def test_it_may_come_back_to_another_server(site: Site, make_site: MakeSite) -> None:
    async with listening(site) as stream:
        last = await stream.marked()
    missed = await site.enqueue()
    other = await make_site()
    async with listening(other, last_event_id=last) as stream:
        while (await stream.job())["id"] != missed["id"]:
            pass


@pytest.mark.every_store
async def test_who_was_away_too_long_is_told_to_read_again(site: Site) -> None:
    for last in ("1000000", "nonsense", "9" * 16):
        async with listening(site, last_event_id=last) as stream:
            assert (await stream.event())[0] == "ready"
            assert (await stream.event())[0] == "gap"


@pytest.mark.every_store
async def test_more_than_can_be_told_is_a_gap(site: Site) -> None:
    async with listening(site, "?type=mail") as stream:
        await stream.event()
        await site.app.enqueue_many(("ping", {}) for _ in range(2_500))
        assert (await stream.event())[0] == "gap"


async def test_many_clients_cost_one_look(site: Site) -> None:
    async with listening(site) as first:
        await first.event()
        streams = [listening(site) for _ in range(20)]
        for stream in streams:
            await (await stream.__aenter__()).event()
        before = site.app.store.calls["changes"]
        for _ in range(4):
            await site.app.store.next("changes")
        together = site.app.store.calls["changes"] - before
        for stream in streams:
            await stream.__aexit__(None, None, None)
    assert together <= 6  # and not one for each of 21, each time


async def test_nobody_listens_and_nobody_looks(site: Site) -> None:
    hub = EventStream(site.app)
    hub.leave(await hub.join(site.records["viewer"].id, Wants(), None))
    assert hub.listening == 0
    assert hub._looking is not None
    async with asyncio.timeout(SECONDS):
        await hub._looking  # it has ended by itself


async def test_a_revoked_token_hears_no_more(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr("rowlock.http.events.event_stream._TOKENS_SECONDS", 0.1)
    async with listening(site) as stream:
        await stream.event()
        await tokens.revoke(site.app.store, site.records["viewer"].id)
        with pytest.raises(StopAsyncIteration):
            await stream.until("never")


async def test_there_is_room_for_so_many(make_site: MakeSite) -> None:
    site = await make_site(http_event_clients_max=1)
    async with listening(site) as stream:
        await stream.event()
        problem(await site.get("/api/v1/events"), 429, "too_many_requests")


async def test_the_store_may_go_away_meanwhile(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr("rowlock.http.events.event_stream._AWAY_SECONDS", 0.05)
    async with listening(site) as stream:
        await stream.event()
        site.app.store.refuse("changes", 3)
        job = await site.enqueue()
        assert (await stream.job())["id"] == job["id"]
