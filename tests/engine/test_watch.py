"""FailureWatch: one log line per spike, and notifications to staff about dead letters."""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import orjson
import pytest

from conformance.builders import ANN, put_and_fail
from engine.conftest import MakeApp
from engine.running import Log, drain, soon
from rowlock import FakeClock, Job, Permanent, Rowlock, Status
from rowlock.control import alerts
from rowlock.jobs.worker.failure_watch import NOTIFICATION_QUEUE, NOTIFICATION_TYPE, FailureWatch
from rowlock.observe import logs
from rowlock.storage.contract import Store
from rowlock.storage.kinds import Records

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def declare(app: Rowlock) -> None:
    @app.job("fails")
    async def fails(job: Job, number: int) -> None:
        raise Permanent("no")


async def fail(app: Rowlock, count: int) -> None:
    await app.enqueue_many([("fails", {"number": number}) for number in range(count)])
    await drain(app, "default")


def watch(app: Rowlock) -> FailureWatch:
    return FailureWatch(app.engine, logs.get())


async def test_failures_below_the_threshold_are_no_spike(app: Rowlock, log: Log) -> None:
    declare(app)
    await fail(app, 9)
    await watch(app).check()
    assert log.of("queue.failure_spike") == []


async def test_a_spike_is_told_once_with_the_shape_that_is_known_and_once_when_it_is_over(
    app: Rowlock, log: Log, clock: FakeClock
) -> None:
    declare(app)
    await fail(app, 12)
    await fail(app, 5)
    await watch(app).check()
    (line,) = log.of("queue.failure_spike")
    assert line["level"] == "error"
    told = {name: line[name] for name in ("type", "threshold", "queueName")}
    assert told == {"type": "QUEUE_FAILURE_SPIKE", "threshold": 10, "queueName": "default"}
    assert line["failedLastHour"] >= 10
    clock.advance(3_700)
    await watch(app).check()
    await watch(app).check()
    (over,) = log.of("queue.failure_spike_over")
    assert over["failedLastHour"] == 0
    await fail(app, 10)
    assert len(log.of("queue.failure_spike")) == 2


async def test_a_worker_looks_by_itself_when_jobs_fail(app: Rowlock, log: Log) -> None:
    declare(app)
    await fail(app, 30)
    assert len(log.of("queue.failure_spike")) == 1


async def test_attempts_that_were_lost_with_their_worker_count_at_once(
    app: Rowlock, store: Store, clock: FakeClock, log: Log
) -> None:
    declare(app)
    await app.enqueue_many([("fails", {"number": number}) for number in range(10)], max_attempts=1)
    assert len(await store.claim("default", ANN, 10)) == 10
    clock.advance(31)
    await drain(app, "default")  # draining begins with a rescue
    assert len(log.of("queue.failure_spike")) == 1


@pytest.mark.every_store
async def test_of_many_who_look_at_once_one_tells(make_app: MakeApp, log: Log) -> None:
    apps = [await make_app() for _ in range(4)]
    for app in apps:
        declare(app)
    await fail(apps[0], 10)
    await asyncio.gather(*(watch(app).check() for app in apps))
    assert len(log.of("queue.failure_spike")) == 1


async def test_an_alert_that_is_raised_while_the_worker_ends_is_told(
    app: Rowlock, store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        await put_and_fail(store)
    raised, go_on = asyncio.Event(), asyncio.Event()
    start = alerts.start

    async def slowly(records: Records, name: str) -> bool:
        answer = await start(records, name)
        raised.set()
        await go_on.wait()
        return answer

    monkeypatch.setattr(alerts, "start", slowly)
    looking = watch(app)
    looking.on_failure()
    await raised.wait()
    ending = asyncio.create_task(looking.close())
    await asyncio.sleep(0)
    go_on.set()
    await ending
    assert len(log.of("queue.failure_spike")) == 1


@pytest.fixture
def hook() -> object:
    """A webhook on loopback, and the requests that it received."""
    received: list[dict[str, object]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(orjson.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", received
    server.shutdown()
    thread.join()
    server.server_close()


async def telling(make_app: MakeApp, url: str) -> Rowlock:
    app = await make_app(webhook_urls=url, webhook_secret=SECRET, webhook_allow_private=True)
    declare(app)
    return app


async def test_many_deaths_are_one_message(
    make_app: MakeApp, clock: FakeClock, store: Store, hook: tuple[str, list[dict[str, object]]]
) -> None:
    url, received = hook
    app = await telling(make_app, url)
    await fail(app, 300)
    await watch(app).notices()
    clock.advance(11)
    await soon(drain(app, NOTIFICATION_QUEUE))
    assert len(received) == 1
    assert not await store.has_unnotified()
    await watch(app).notices()  # nothing new: no notification
    clock.advance(400)
    await drain(app, NOTIFICATION_QUEUE)
    assert len(received) == 1


async def test_messages_do_not_come_faster_than_the_setting(
    make_app: MakeApp, clock: FakeClock, hook: tuple[str, list[dict[str, object]]]
) -> None:
    url, received = hook
    app = await telling(make_app, url)
    for _ in range(5):
        await fail(app, 2)
        await watch(app).notices()
        clock.advance(15)
        await drain(app, NOTIFICATION_QUEUE)
    assert len(received) == 1
    clock.advance(300)
    await watch(app).notices()
    clock.advance(15)
    await drain(app, NOTIFICATION_QUEUE)
    assert len(received) == 2


async def test_a_target_that_is_away_is_tried_again_and_blocks_nothing(
    make_app: MakeApp, clock: FakeClock, store: Store
) -> None:
    app = await telling(make_app, "http://127.0.0.1:9/")
    await fail(app, 1)
    await watch(app).notices()
    clock.advance(11)
    await drain(app, NOTIFICATION_QUEUE)
    (notice,) = (await app.jobs(type=NOTIFICATION_TYPE)).jobs
    assert notice.status is Status.QUEUED
    assert "127.0.0.1" in (notice.error or "")
    await fail(app, 1)
    assert (await app.jobs(type="fails")).jobs[0].status is Status.FAILED


async def test_without_targets_nobody_is_told(app: Rowlock) -> None:
    declare(app)
    await fail(app, 1)
    await watch(app).notices()
    assert (await app.jobs(type=NOTIFICATION_TYPE)).jobs == []
