"""Limits of size, time and number: every request gets a response of the API in time, and the next one is served."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from itertools import count

import psutil
import pytest

from engine.running import Log
from rowlock.http.connection import Connection
from rowlock.http.middleware.body_limits import Body
from web.conftest import MakeSite
from web.malformed import MALFORMED, ODD_PATHS
from web.site import Site, problem
from web.wire import Answer, Wire, body_of, chunk, enqueue, head, not_refused, wire

QUICK = {"http_header_seconds": 1.0, "http_body_seconds": 1.0}
SLACK_SECONDS = 30.0
"""How much later than its limit something may end on a busy machine."""

MEGABYTE = 1_048_576


async def served(site: Site) -> None:
    """The next one is answered."""
    assert (await site.get("/healthz", None)).status_code == 200
    assert (await site.get("/api/v1/queue/stats")).status_code == 200


# -- what is no request ----------------------------------------------------------------------------


async def test_what_is_malformed_is_refused_in_our_words_or_cut_off(make_site: MakeSite, log: Log) -> None:
    site = await make_site(**QUICK)
    assert await not_refused(site.port, MALFORMED) == {}
    await served(site)
    assert log.of("http.failed") == []


async def test_what_is_cut_off_anywhere_harms_nobody(make_site: MakeSite, log: Log) -> None:
    site = await make_site(**QUICK)
    whole = enqueue(site, content_length="15") + b'{"type":"ping"}'
    for end in range(1, len(whole), 7):
        async with wire(site.port) as line:
            await line.send(whole[:end])
    await served(site)
    assert log.of("http.failed") == []
    assert (await site.get("/api/v1/queue")).json()["jobs"] == []


async def test_odd_paths_pass_nobody_and_break_nothing(site: Site) -> None:
    for path in ODD_PATHS:
        for token, allowed in ((None, (401,)), ("admin", (200, 404, 405, 422))):
            async with wire(site.port) as line:
                await line.send(head(site, path=path, token=token))
                answer = await line.answer()
                assert answer is not None, path
                assert answer.status in allowed, (path, answer)
                if answer.status != 200:
                    answer.problem()
                assert "set-cookie" not in answer.headers
    await served(site)


async def test_a_path_is_the_same_in_any_spelling(site: Site) -> None:
    for path in ("/healthz", "/%68ealthz", "http://elsewhere.example/healthz", "/healthz?x=1"):
        async with wire(site.port) as line:
            await line.send(head(site, path=path, token=None))
            answer = await line.answer()
            assert answer is not None
            assert answer.json() == {"status": "ok"}


async def test_requests_in_a_row_are_answered_in_order(site: Site) -> None:
    paths = ["/healthz", "/api/v1/queue/stats", "/nowhere", "/api/v1/queues"] * 10
    async with wire(site.port) as line:
        await line.send(b"".join(head(site, path=path) for path in paths))
        answers = [await line.answer() for _ in paths]
    assert [answer and answer.status for answer in answers] == [200, 200, 404, 200] * 10


async def test_a_body_is_not_taken_for_the_next_request(site: Site) -> None:
    inner = head(site, path="/api/v1/queues")
    async with wire(site.port) as line:
        await line.send(head(site, content_length=str(len(inner))) + inner + head(site, path="/nowhere"))
        answers = [await line.answer(), await line.answer()]
        assert [answer and answer.status for answer in answers] == [200, 404]


async def test_trailers_say_nothing(site: Site) -> None:
    trailers = f"authorization: Bearer {site.tokens['admin']}\r\nidempotency-key: x\r\n\r\n".encode()
    for token, status in ((None, 401), ("viewer", 403)):
        async with wire(site.port) as line:
            await line.send(
                enqueue(site, token, transfer_encoding="chunked") + chunk(body_of(15)) + b"0\r\n" + trailers
            )
            answer = await line.answer()
            assert answer is not None
            assert answer.status == status
    assert site.app.store.calls["read requests"] == 0


async def test_a_flood_of_trailers_is_cut_off(make_site: MakeSite) -> None:
    site = await make_site(http_body_seconds=20.0)
    for flood in (b"x: y\r\n" * 20_000, b"x" * 100_000):
        async with wire(site.port) as line:
            await line.send(enqueue(site, transfer_encoding="chunked") + chunk(body_of(15)) + b"0\r\n")
            taken = 0
            while not line.reader.at_eof() and taken < 200 * MEGABYTE:
                await line.send(flood)
                taken += len(flood)
                await asyncio.sleep(0)
                if line.writer.transport.is_closing():
                    break
            assert taken < 200 * MEGABYTE
    await served(site)


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /healthz HTTP/1.1\r\nx: "])
async def test_a_head_that_does_not_come_is_not_waited_for(make_site: MakeSite, begun: bytes) -> None:
    site = await make_site(**QUICK)
    async with wire(site.port) as line:
        await line.send(begun)
        await hangs_up(line, QUICK["http_header_seconds"])
    await served(site)


@pytest.mark.parametrize("begun", [b"G", b"GET /healthz HTTP/1.1\r\nx: ", b"\r\n"])
async def test_nor_is_that_of_a_later_request(make_site: MakeSite, begun: bytes) -> None:
    site = await make_site(**QUICK)
    async with wire(site.port) as line:
        for _ in range(2):
            await line.send(head(site, path="/healthz"))
            answer = await line.answer()
            assert answer is not None
            assert answer.status == 200
        await line.send(begun)
        await hangs_up(line, QUICK["http_header_seconds"])
    await served(site)


async def test_that_attack_notices_that_nobody_looks_at_the_time(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "_watch", lambda self: None)
    site = await make_site(**QUICK)
    async with wire(site.port) as line:
        await line.send(b"G")
        with pytest.raises(TimeoutError):
            await hangs_up(line, QUICK["http_header_seconds"], slack_seconds=1.0)


async def test_an_idle_connection_is_kept(make_site: MakeSite) -> None:
    site = await make_site(**QUICK)
    async with wire(site.port) as line:
        for pause in (0.0, QUICK["http_header_seconds"] * 1.5, QUICK["http_header_seconds"] * 1.5):
            await asyncio.sleep(pause)  # longer than a head may take
            await line.send(head(site, path="/healthz"))
            answer = await line.answer()
            assert answer is not None
            assert answer.status == 200


async def test_a_head_byte_by_byte_is_not_waited_for(make_site: MakeSite) -> None:
    site = await make_site(**QUICK)
    async with wire(site.port) as line:
        dribble = asyncio.create_task(drip(line, head(site) * 10))
        await hangs_up(line, QUICK["http_header_seconds"])
        dribble.cancel()
        await asyncio.gather(dribble, return_exceptions=True)
    await served(site)


async def test_a_body_byte_by_byte_is_not_waited_for(make_site: MakeSite) -> None:
    site = await make_site(**QUICK)
    for more, data in (
        ({"content_length": "9000"}, b" " * 9_000),
        ({"transfer_encoding": "chunked"}, chunk(b" ") * 900),
    ):
        async with wire(site.port) as line:
            await line.send(enqueue(site, **more))
            dribble = asyncio.create_task(drip(line, data))
            began = time.monotonic()
            answer = await line.answer()
            assert answer is not None
            answer.problem("request_timeout")
            await line.closed(SLACK_SECONDS)
            assert time.monotonic() - began < QUICK["http_body_seconds"] + SLACK_SECONDS
            dribble.cancel()
            await asyncio.gather(dribble, return_exceptions=True)
    await served(site)


async def test_a_body_that_is_announced_and_never_sent_is_not_waited_for(make_site: MakeSite) -> None:
    site = await make_site(**QUICK)
    for path in ("/api/v1/queue/enqueue", "/api/v1/events", "/nowhere"):
        async with wire(site.port) as line:
            await line.send(head(site, "POST", path, content_type="application/json", content_length="100"))
            answer = await line.answer()
            assert answer is not None
            answer.problem("request_timeout")
            await line.closed(SLACK_SECONDS)
    await served(site)


async def test_a_strangers_body_takes_nobodys_place(make_site: MakeSite) -> None:
    """/healthz and /readyz are for all: what is sent to them is not received, so it cannot keep others out."""
    site = await make_site(http_bodies_max=1)
    async with wire(site.port) as line:
        await line.send(head(site, "POST", "/healthz", content_type="application/json", content_length="100000"))
        answer = await line.answer()
        assert answer is not None
        answer.problem("method_not_allowed")
        large = {"type": "open", "payload": {"a": "x" * 100_000}}
        assert (await site.post("/api/v1/queue/enqueue", large)).status_code == 201


async def test_nor_is_that_of_a_stranger(make_site: MakeSite) -> None:
    site = await make_site(**QUICK)
    for more in ({"content_length": "100"}, {"transfer_encoding": "chunked"}):
        async with wire(site.port) as line:
            await line.send(enqueue(site, None, **more))
            answer = await line.answer()
            assert answer is not None
            answer.problem("unauthorized")
            await line.closed(SLACK_SECONDS)


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(make_site: MakeSite, log: Log) -> None:
    site = await make_site(http_bodies_max=1)
    for _ in range(5):  # the one place for a large body is free again each time
        async with wire(site.port) as line:
            await line.send(enqueue(site, content_length="100000", expect="100-continue"))
            answer = await line.answer()
            assert answer is not None
            assert answer.status == 100
            await line.send(b" " * 70_000)
        while len(open_connections(site)) > 1:  # that of the site's own client
            await asyncio.sleep(0.01)
    await served(site)
    assert log.of("http.failed") == []


async def test_answers_that_nobody_reads_are_not_kept(site: Site, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.setattr("rowlock.http.connection._STUCK_SECONDS", 0.5)
    await site.app.enqueue_many(("open", {"text": "x" * 500}) for _ in range(500))
    size = len((await site.get("/api/v1/queue?limit=500")).content)
    count = 30 * MEGABYTE // size  # more than two sockets hold
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", site.port))
        client.sendall(head(site, path="/api/v1/queue?limit=500") * count)
        while len(open_connections(site)) < 2:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            while len(open_connections(site)) > 1:
                await asyncio.sleep(0.05)
    await served(site)
    assert log.of("http.failed") == []


@pytest.mark.parametrize("verb", ["page", "read tokens by digest"])
async def test_a_store_that_stands_still_is_not_waited_for(make_site: MakeSite, verb: str) -> None:
    site = await make_site(http_request_seconds=1.5)
    with site.app.store.stalled(verb):
        told = problem(await site.get("/api/v1/queue"), 504, "timeout")
        assert "1.5 seconds" in told["detail"]
    await served(site)


@pytest.mark.parametrize(
    "verbs",
    [["read requests"], ["insert requests"], ["enqueue"], ["enqueue", "update requests"], ["update requests"]],
)
async def test_nor_with_an_idempotency_key(make_site: MakeSite, verbs: list[str]) -> None:
    site = await make_site(http_request_seconds=1.5)
    with ExitStack() as stack:
        for verb in verbs:
            stack.enter_context(site.app.store.stalled(verb))
        answer = await site.post("/api/v1/queue/enqueue", {"type": "ping"}, headers={"idempotency-key": "k"})
        problem(answer, 504, "timeout")
    await served(site)


async def test_answers_on_a_kept_connection_do_not_wait_for_the_network(site: Site) -> None:
    """Headers and body go out in two packets: without TCP_NODELAY, the second waits until the first is acknowledged."""
    async with wire(site.port) as line, asyncio.timeout(SLACK_SECONDS):
        for number in count():
            began = time.monotonic()
            await line.send(head(site, path="/healthz"))
            assert await line.answer() is not None
            if number and time.monotonic() - began < 0.03:  # otherwise each takes 40 ms, except the first
                break


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [0, 1, 7, 1_000])
async def test_a_body_may_be_so_large(make_site: MakeSite, chunks: int) -> None:
    limit = 10_000
    site = await make_site(http_body_bytes_max=limit)
    for size, status in ((limit - 1, 201), (limit, 201), (limit + 1, 413)):
        async with wire(site.port) as line:
            body = body_of(size)
            if chunks:
                step = -(-size // chunks)
                data = b"".join(chunk(body[at : at + step]) for at in range(0, size, step)) + b"0\r\n\r\n"
                await line.send(enqueue(site, transfer_encoding="chunked") + data)
            else:
                await line.send(enqueue(site, content_length=str(size)) + body)
            answer = await line.answer()
            assert answer is not None
            assert answer.status == status
            if status == 413:
                answer.problem("body_too_large")
    assert len((await site.get("/api/v1/queue")).json()["jobs"]) == 2


async def pour(site: Site, megabytes: int, token: str | None = "admin") -> tuple[int, Answer | None]:
    """Send a chunked body without end; how many megabytes went before the server hung up, and what it said."""
    async with wire(site.port) as line:
        await line.send(enqueue(site, token, transfer_encoding="chunked"))
        answering = asyncio.create_task(line.answer(60))
        sent = 0
        while sent < megabytes and not answering.done() and not line.writer.transport.is_closing():
            await line.send(chunk(b" " * MEGABYTE))
            sent += 1
        if sent == megabytes:
            await line.send(b"0\r\n\r\n")
        return sent, await answering


@pytest.mark.parametrize("token", ["admin", None])
async def test_a_gigabyte_is_cut_off_and_never_held(site: Site, token: str | None) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    sent, answer = await pour(site, 1_024, token)
    if answer is not None:  # or it was cut off while it was sending
        answer.problem("body_too_large" if token else "unauthorized")
    assert sent < 64  # what fits into the buffers of two sockets
    assert process.memory_info().rss - before < 64 * MEGABYTE
    await served(site)


@pytest.mark.parametrize(("token", "status"), [("admin", 413), (None, 401), ("viewer", 413)])
async def test_a_client_that_sends_a_little_too_much_reads_the_answer(
    site: Site, token: str | None, status: int
) -> None:
    for body in (b" " * 3 * MEGABYTE, spaces(3)):
        headers = {"content-type": "application/json"}
        answer = await site.ask("POST", "/api/v1/queue/enqueue", token, content=body, headers=headers)
        assert answer.status_code == status
    await served(site)


async def test_that_attack_notices_that_the_cap_is_gone(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    boundless = property(lambda body: 1 << 40, lambda body, limit: None)
    monkeypatch.setattr(Body, "_bytes_max", boundless, raising=False)
    site = await make_site()
    sent, answer = await pour(site, 96)
    assert sent == 96
    assert answer is None or answer.status != 413


async def test_so_many_large_bodies_at_once(make_site: MakeSite) -> None:
    site = await make_site(http_bodies_max=2)
    large = enqueue(site, content_length="70000", expect="100-continue")
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(wire(site.port)) for _ in range(2)]
        for line in lines:
            await line.send(large)
            answer = await line.answer()
            assert answer is not None
            assert answer.status == 100  # it has its place
        refused = await site.post("/api/v1/queue/enqueue", {"type": "open", "payload": {"x": "y" * 70_000}})
        problem(refused, 429, "too_many_requests")
        assert int(refused.headers["retry-after"]) >= 1
        await site.enqueue("open", payload={"x": "y" * 1_000})  # small ones are not counted
        for line in lines:
            await line.send(body_of(70_000))
            answer = await line.answer()
            assert answer is not None
            assert answer.status == 201
    await site.enqueue("open", payload={"x": "y" * 70_000})


@pytest.mark.parametrize("pieces", [1, 50])
async def test_a_head_may_be_so_large(make_site: MakeSite, pieces: int) -> None:
    limit = 2_000
    site = await make_site(http_header_bytes_max=limit)
    for size, status in ((limit - 200, 200), (limit + 200, 431), (limit * 100, 431)):
        async with wire(site.port) as line:
            plain = head(site, path="/healthz", x="")
            data = head(site, path="/healthz", x="y" * (size - len(plain)))
            step = -(-len(data) // pieces)
            for at in range(0, len(data), step):
                await line.send(data[at : at + step])
                await asyncio.sleep(0)
            answer = await line.answer()
            if status == 431:
                if answer is not None:  # or it was cut off while it was sending
                    answer.problem("headers_too_large")
                await line.closed()
            else:
                assert answer is not None
                assert answer.status == 200
    await served(site)


# -- kinds -----------------------------------------------------------------------------------------


async def test_a_body_must_be_json(site: Site) -> None:
    path = "/api/v1/queue/enqueue"
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "x",
    ):
        problem(
            await site.ask("POST", path, content=b'{"type":"ping"}', headers={"content-type": kind}),
            415,
            "unsupported_media_type",
        )
    problem(await site.ask("POST", path, content=b'{"type":"ping"}'), 415, "unsupported_media_type")
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/vnd.rowlock+json"):
        answer = await site.ask("POST", path, content=b'{"type":"ping"}', headers={"content-type": kind})
        assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"{",
        b"[]",
        b"null",
        b'"ping"',
        b"{}",
        b"\xff\xfe",
        b'{"type": "ping\x00"}',
        b'{"type": "\\u0000"}',
        b'{"type": "\\ud800"}',
        b'{"type": "ping", "\\ud800": 1}',
        b'{"type": "open", "payload": {"\\ud800": 1}}',
        b'{"type": "open", "payload": {"x": "\\ud800"}}',
        b'{"type": "open", "payload": {"x": NaN}}',
        b'{"type": "open", "payload": {"x": 1e999}}',
        b'{"type": "open", "payload": {"x": 99999999999999999999}}',
        b'{"type": "open", "payload": {"x": ' + b"9" * 5_000 + b"}}",
        b'{"type": "open", "payload": {"x": ' + b"[" * 500 + b"]" * 500 + b"}}",
        b'{"type": "open", "payload": ' + b'{"x":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b"[" * 500_000,
        b'{"type": "ping", "delaySeconds": NaN}',
        b'{"type": "ping", "delaySeconds": -1}',
        b'{"type": "ping", "availableAt": "99999-01-01T00:00:00Z"}',
        b'{"type": "ping", "availableAt": "0001-01-01T00:00:00+23:59"}',
        b'{"type": "ping", "availableAt": "2030-01-01T00:00:00"}',
        b'{"type": "ping", "availableAt": 1e300}',
        b'{"type": "ping", "priority": 32768}',
        b'{"type": "ping", "unique": {"policy": "window"}}',
        b'{"type": "ping", "unique": {"key": "\\u0000"}}',
        b'{"type": "ping", "companyId": "\\ud800"}',
        b'{"type": "ping", "limitKey": ""}',
        b'{"type": "ping", "type": 1}',
    ],
)
async def test_a_body_that_makes_no_sense_is_the_clients_fault(site: Site, body: bytes) -> None:
    answer = await site.ask("POST", "/api/v1/queue/enqueue", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    problem(answer, 422, answer.json()["code"])


async def test_methods_that_are_not_for_a_path(site: Site) -> None:
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        problem(await site.ask(method, "/api/v1/queue", None), 401, "unauthorized")
        answer = await site.ask(method, "/api/v1/queue")
        problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "GET"
        assert site.tokens["admin"] not in answer.text
    assert (await site.ask("HEAD", "/api/v1/queue", None)).status_code == 401
    answer = await site.ask("HEAD", "/api/v1/queue")
    assert (answer.status_code, answer.content) == (405, b"")
    problem(await site.get("/api/v1/queue/enqueue/x"), 404, "not_found")
    problem(await site.post("/api/v1/queue/stats"), 405, "method_not_allowed")


# -- parts -----------------------------------------------------------------------------------------


async def spaces(megabytes: int) -> AsyncIterator[bytes]:
    for _ in range(megabytes):
        yield b" " * MEGABYTE


async def drip(line: Wire, data: bytes) -> None:
    for byte in data:
        await line.send(bytes([byte]))
        await asyncio.sleep(0.02)


async def hangs_up(line: Wire, seconds: float, slack_seconds: float = SLACK_SECONDS) -> None:
    """Assert that the server closes the connection soon after this many seconds, with an error of the API or none."""
    began = time.monotonic()
    answer = await line.answer(seconds + slack_seconds)
    if answer is not None:
        answer.problem("request_timeout")
    await line.closed(slack_seconds)
    assert time.monotonic() - began < seconds + slack_seconds


def open_connections(site: Site) -> list[object]:
    """The server's ends of its connections."""
    return [
        found
        for found in psutil.Process().net_connections("tcp")
        if found.laddr and found.laddr[1] == site.port and found.status == psutil.CONN_ESTABLISHED
    ]
