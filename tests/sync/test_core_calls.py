"""One call: the request, the meaning of the response, and what is logged."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from engine.conftest import MakeApp
from engine.running import Log, drain, record, soon
from rowlock import Answer, Call, Integration, JobRecord, RateLimit, Rowlock, SettingsError, Status
from rowlock.observe import logs
from sync.conftest import MakeHub
from sync.service import Reply, Service

TOKEN = "secret-token-1"


async def run(hub: Integration, payload: dict[str, Any] | None = None, operation: str = "do") -> JobRecord:
    app: Rowlock = hub._app
    receipt = await hub.enqueue(operation, payload or {})
    await drain(app, *hub.queues)
    return await record(app, receipt.job_id)


async def test_a_call_carries_what_it_should_and_its_answer_is_the_result(hub: Integration, service: Service) -> None:
    service.script.append(Reply(201, {"id": "7"}, {"X-Request-Id": "r-1"}))
    answers: list[Answer] = []

    @hub.operation("do")
    async def do(call: Call, name: str) -> Any:
        answers.append(await call.post("/things", {"name": name}, params={"a": "x&y", "none": None}))
        return answers[0].json

    after = await run(hub, {"name": "Ada"})
    assert (after.status, after.result) == (Status.SUCCEEDED, '{"id":"7"}')
    (asked,) = service.asked
    assert (asked.method, asked.path, asked.json) == ("POST", "/things?a=x%26y", {"name": "Ada"})
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["user-agent"].startswith("rowlock/")
    (answer,) = answers
    assert (answer.status, answer.ok, answer.request_id, answer.headers["x-request-id"]) == (201, True, "r-1", "r-1")


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
async def test_every_method_is_sent(hub: Integration, service: Service, method: str) -> None:
    @hub.operation("do")
    async def do(call: Call) -> int:
        return (await getattr(call, method)("/x")).status

    assert (await run(hub)).result == "200"
    assert service.paths() == [f"{method.upper()} /x"]


async def test_nothing_and_a_multi_status_are_answers_too(hub: Integration, service: Service) -> None:
    service.script.extend([Reply(204, body=b""), Reply(207, {"errors": [1]})])

    @hub.operation("do")
    async def do(call: Call) -> Any:
        nothing, some = await call.get("/a"), await call.get("/b")
        return [nothing.json, some.status, some.json]

    assert (await run(hub)).result == '[null,207,{"errors":[1]}]'


@pytest.mark.parametrize("status", [400, 404, 409, 500, 503, 302])
async def test_an_error_goes_to_the_queue_at_once_and_says_what_the_service_said(
    hub: Integration, service: Service, status: int
) -> None:
    body = {"category": "NO_LUCK", "message": "the moon is wrong", "correlationId": "c-9"}
    service.answer = lambda asked: Reply(status, body, {"location": "/elsewhere"})

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.post("/things")

    after = await run(hub)
    assert (after.status, after.attempts) == (Status.QUEUED, 1)
    assert after.error == f"CallFailed: POST /things: {status} NO_LUCK the moon is wrong (request c-9)"
    assert len(service.asked) == 1
    waits_seconds = (after.available_at - after.updated_at).total_seconds()
    assert 107 < waits_seconds < 121, "60 s * 2 ** 1, of which up to a tenth is left to chance"


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, {}), (403, {"category": "FORBIDDEN"}), (400, {"category": "MISSING_SCOPES", "message": "no"})],
)
async def test_a_refused_credential_is_dead_at_once_with_what_to_do(
    make_hub: MakeHub, service: Service, status: int, body: dict[str, str]
) -> None:
    hub = await make_hub(scopes_url="https://crm.example/scopes")
    service.answer = lambda asked: Reply(status, body)

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.post("/things")

    after = await run(hub)
    assert (after.status, after.attempts, len(service.asked)) == (Status.FAILED, 1, 1)
    assert after.error is not None
    assert after.error.startswith(f"CallRefused: POST /things: {status}")
    assert "check the token and its scopes at https://crm.example/scopes" in after.error
    assert "rowlock dead retry --type 'crm.*'" in after.error


async def test_answers_that_the_function_expects_are_returned(hub: Integration, service: Service) -> None:
    service.script.append(Reply(409, {"message": "Existing ID: 5"}))

    @hub.operation("do")
    async def do(call: Call) -> Any:
        return (await call.post("/things", accept={409})).json["message"]

    assert (await run(hub)).result == '"Existing ID: 5"'


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(cut_at=0), "Server disconnected"),
        (Reply(cut_at=30), "Server disconnected|peer closed"),
        (Reply(json={"a": "b" * 100}, cut_at=80), "peer closed|incomplete"),
        (Reply(body=b"<html>fine</html>"), "not JSON"),
        (Reply(body=b'{"half": '), "not JSON"),
        (Reply(body=b'"' + b"x" * 10_485_760 + b'"'), "larger than 10,485,760 bytes"),
    ],
    ids=["cut", "head cut", "truncated", "html", "half json", "huge"],
)
async def test_an_answer_that_is_not_whole_leaves_it_open_whether_it_was_done(
    hub: Integration, service: Service, reply: Reply, reason: str
) -> None:
    service.script.append(reply)

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.post("/things")

    after = await run(hub)
    assert (after.status, after.attempts) == (Status.QUEUED, 1)
    assert re.fullmatch(f"CallUncertain: POST /things: .*({reason}).*; it may have been done", after.error or "")


async def test_html_with_an_error_status_is_an_error_like_others(hub: Integration, service: Service) -> None:
    service.script.append(Reply(502, body=b"<html>\n<b>Bad   gateway</b></html>"))

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.get("/x")

    assert (await run(hub)).error == "CallFailed: GET /x: 502 <html> <b>Bad gateway</b></html>"


async def test_a_call_takes_no_longer_than_it_may(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(timeout_seconds=0.3)
    service.answer = lambda asked: Reply(wait=asyncio.Event())

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.post("/things")

    after = await soon(run(hub))
    assert after.error == "CallUncertain: POST /things: no answer within 0.3 s; it may have been done"


async def test_a_trickle_does_not_extend_the_time(make_hub: MakeHub, service: Service) -> None:
    """Each byte is in time, the whole is not."""
    hub = await make_hub(timeout_seconds=0.5)
    service.script.append(Reply(body=b" " * 1_000, byte_seconds=0.02))

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.get("/x")

    after = await soon(run(hub))
    assert after.error == "CallUncertain: GET /x: no answer within 0.5 s; it may have been done"


async def test_a_service_that_is_not_there_was_certainly_not_called(make_hub: MakeHub) -> None:
    hub = await make_hub(base_url="http://127.0.0.1:1")

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.post("/things")

    after = await run(hub)
    assert (after.error or "").startswith("CallFailed: POST /things: the service cannot be reached: ")
    assert [limit["inUse"] for limit in (await hub.monitor())["limits"]] == [0]


async def test_the_token_stands_in_no_error_and_no_log(make_app: MakeApp, service: Service, log: Log) -> None:
    logs.configure("debug", "json", stream=log.stream)
    app = await make_app(clock=None, log_level="debug")
    hub = app.integration("crm", base_url=service.url, token=TOKEN)
    service.answer = lambda asked: Reply(400, {"message": f"you sent {asked.headers['authorization'].split()[1]}"})

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.post("/things")

    after = await run(hub)
    assert "you sent" in (after.error or "")
    failures = await app.failures()
    for text in (after.error, log.text, repr(hub), repr(failures)):
        assert TOKEN not in (text or "")
    assert [line["status"] for line in log.of("sync.call")] == [400]


@pytest.mark.parametrize("status", [400, 401, 429])
@pytest.mark.parametrize(
    "body",
    [
        {"error": "The token {} has expired"},
        {"category": "x" * 90 + "{}", "message": "y" * 290 + "{}"},
        {"message": "no", "correlationId": "{}"},
    ],
    ids=["error", "where it is cut", "request id"],
)
@pytest.mark.parametrize("secret", [TOKEN, "key-of-the-header", "dXNlcjpwYXNz"])
async def test_no_credential_stands_in_what_is_told_of_an_error(
    make_hub: MakeHub, service: Service, log: Log, secret: str, body: dict[str, str], status: int
) -> None:
    headers = {"X-Api-Key": "key-of-the-header", "Proxy-Authorization": "Basic dXNlcjpwYXNz", "x-version": "7"}
    hub = await make_hub(headers=headers, rest_seconds=(0.001, 0.001), limits=[RateLimit(100)])
    told = {name: text.replace("{}", secret) for name, text in body.items()}
    service.answer = lambda asked: Reply(status, told)
    errors: list[Exception] = []

    @hub.operation("do")
    async def do(call: Call) -> None:
        try:
            await call.post("/things")
        except Exception as error:
            errors.append(error)

    await run(hub)
    (error,) = errors
    for text in (str(error), repr(getattr(error, "answer", None)), log.text):
        assert secret[:8] not in text


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "ümlaut"])
async def test_a_token_that_no_header_takes_is_refused_without_being_shown(make_hub: MakeHub, token: str) -> None:
    with pytest.raises(SettingsError, match="token must be printable") as raised:
        await make_hub(token=token)
    assert not token or token not in str(raised.value)


@pytest.mark.parametrize(
    "path", ["things", "//evil.example/x", "/a/../b", "/a/%2e%2e/b", "/a?b=c", "/a#b", "/a b", "/a\\b", "/a\nb"]
)
async def test_a_path_leads_nowhere_else(hub: Integration, service: Service, path: str) -> None:
    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.get(path)

    after = await run(hub)
    assert after.status is Status.FAILED
    assert "not a path below the service's address" in (after.error or "")
    assert service.asked == []
    assert [limit["inUse"] for limit in (await hub.monitor())["limits"]] == [0], "and its permit is given back"


async def test_connections_are_kept(make_hub: MakeHub, service: Service) -> None:
    hub = await make_hub(limits=[RateLimit(100)])

    @hub.operation("do")
    async def do(call: Call) -> None:
        for _ in range(5):
            await call.get("/x")

    await run(hub)
    assert len(service.asked) == 5
    assert service.connections == 1


@pytest.mark.every_store
async def test_what_was_called_is_counted(hub: Integration, service: Service) -> None:
    service.script.extend([Reply(200), Reply(500), Reply(cut_at=0)])

    @hub.operation("do", retry=None)
    async def do(call: Call) -> None:
        await call.get("/x")

    for _ in range(3):
        await run(hub)
    counted = {
        measure.labels: number
        for measure, number in (await hub._app.store.measures()).items()
        if measure.name == "sync_call"
    }
    assert counted == {
        '{"integration":"crm","status":"2xx"}': 1,
        '{"integration":"crm","status":"5xx"}': 1,
        '{"integration":"crm","status":"none"}': 1,
    }


async def test_a_call_carries_the_trace_of_its_enqueue(
    hub: Integration, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())

    @hub.operation("do")
    async def do(call: Call) -> None:
        await call.get("/x")

    with trace.get_tracer("user").start_as_current_span("order") as span:
        receipt = await hub.enqueue("do", {})
    await drain(hub._app, *hub.queues)
    assert (await record(hub._app, receipt.job_id)).status is Status.SUCCEEDED
    trace_id = service.asked[0].headers["traceparent"].split("-")[1]
    assert trace_id == f"{span.get_span_context().trace_id:032x}"
