"""Stats and monitor: the counts, the latest failures, the lag and the remaining calls, as documented."""

from __future__ import annotations

import pytest

from engine.conftest import MakeApp
from engine.running import drain
from rowlock import Call, Calls, Integration, RateLimit, Update
from sync.conftest import MakeHub
from sync.service import Reply, Service


@pytest.fixture
async def busy(make_hub: MakeHub, service: Service) -> Integration:
    """One pending, one waiting for a retry, one dead, two done; of another queue one pending."""
    hub = await make_hub(
        limits=[RateLimit(50, per_seconds=60), RateLimit(4, per_seconds=1, group="search")], disabled=None
    )

    @hub.operation("do")
    async def do(call: Call, name: str) -> None:
        await call.post("/things", group="search" if name == "search" else None)

    @hub.operation("update", about="{email}", batch=100)
    async def update(calls: Calls, updates: list[Update]) -> None: ...

    service.script.extend([Reply(200), Reply(200), Reply(500, {"message": "oh"}), Reply(403)])
    for name in ("a", "search", "c", "d"):
        await hub.enqueue("do", {"name": name}, company_id="acme" if name == "c" else None)
        await drain(hub._app, *hub.queues)
    await hub.enqueue("do", {"name": "e"})
    await hub.enqueue("update", {"email": "a@x", "properties": {}})
    return hub


@pytest.mark.every_store
async def test_the_counts_are_those_of_all_its_queues(busy: Integration) -> None:
    expected = {"pending": 2, "processing": 0, "failed": 1, "dead": 1, "completed24h": 2}
    assert await busy.stats() == expected
    await busy._app.store.claim("crm", "00000000-0000-7000-8000-000000000009", 1)
    assert await busy.stats() == expected | {"pending": 1, "processing": 1}
    other = busy._app.integration("other", base_url="http://other.example")
    assert set((await other.stats()).values()) == {0}


async def test_the_monitor_has_the_whole_picture(busy: Integration) -> None:
    seen = await busy.monitor()
    assert (seen["integration"], seen["enabled"], seen["why"]) == ("crm", True, None)
    assert seen["counts"] == await busy.stats()
    assert seen["meanProcessingMs"] > 0
    assert seen["lagSeconds"] >= 0
    dead, retrying = seen["failures"]
    assert (dead["operation"], dead["status"], dead["retryCount"], dead["nextRetryAt"]) == ("do", "failed", 0, None)
    assert dead["error"].startswith("CallRefused")
    assert (retrying["status"], retrying["retryCount"]) == ("queued", 1)
    assert retrying["error"] == "CallFailed: POST /things: 500 oh"
    assert retrying["nextRetryAt"] is not None
    all_calls, searches = seen["limits"]
    assert (all_calls["name"], all_calls["count"], all_calls["inUse"], all_calls["restsUntil"]) == ("60 s", 50, 4, None)
    assert (searches["name"], searches["group"], searches["perSeconds"]) == ("search 1 s", "search", 1)


async def test_for_one_company_only_what_is_hers(busy: Integration) -> None:
    assert await busy.stats("acme") == {"pending": 0, "processing": 0, "failed": 1, "dead": 0, "completed24h": 0}
    seen = await busy.monitor("acme")
    assert [failure["status"] for failure in seen["failures"]] == ["queued"]
    assert seen["limits"] == []


async def test_where_only_companies_have_accounts_the_rest_is_told_without_a_budget(make_hub: MakeHub) -> None:
    accounts = {"acme": "a"}
    hub = await make_hub(limits=[RateLimit(50)], account=lambda company: accounts[company])
    seen = await hub.monitor()
    assert (seen["limits"], seen["counts"]["pending"]) == ([], 0)


async def test_an_operation_has_its_own_name_where_the_integration_s_has_a_dot(
    make_app: MakeApp, service: Service
) -> None:
    app = await make_app(clock=None)
    hub = app.integration("crm.eu", base_url=service.url, limits=[RateLimit(50)])

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.post("/things")

    service.script.append(Reply(403))
    await hub.enqueue("do", {})
    await drain(app, *hub.queues)
    assert [failure["operation"] for failure in (await hub.monitor())["failures"]] == ["do"]


async def test_the_latest_twenty_failures_are_shown(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=[RateLimit(1_000)], concurrency=1)
    service.answer = lambda asked: Reply(500, {"message": asked.json["n"]})

    @hub.operation("do")
    async def do(call: Call, n: str) -> None:
        await call.post("/things", {"n": n})

    for number in range(25):
        await hub.enqueue("do", {"n": str(number)})
    await drain(hub._app, *hub.queues)
    failures = (await hub.monitor())["failures"]
    assert [failure["error"].split()[-1] for failure in failures] == [str(n) for n in range(24, 4, -1)]


async def test_each_cycle_leaves_a_record(make_hub: MakeHub) -> None:
    hub = await make_hub(cycle_seconds=120)
    app = hub._app

    @hub.operation("do")
    async def do(call: Call) -> None: ...

    await hub.enqueue("do", {})
    schedule = app.schedules["crm"]
    assert (schedule.type, schedule.every_seconds, schedule.start_delay_seconds) == ("crm.cycle", 120, 30)
    assert schedule.spec == "every 120 s, first 30 s after start-up"
    receipt = await app.enqueue("crm.cycle")
    await drain(app, app.settings.queue)
    found = await app.get(receipt.job_id)
    assert found is not None
    assert found.result == '{"pending":1,"processing":0,"failed":0,"dead":0,"completed24h":0}'
    assert (await make_hub(cycle_seconds=120, disabled="off"))._app.schedules == {}
