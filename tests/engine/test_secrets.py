"""Secrets never leak: not in logs of any level, stored errors or messages to producers."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.builders import put
from engine.conftest import MakeApp
from engine.running import Log, drain
from rowlock import BadPayload, FakeClock, Job, Permanent, Retry, Rowlock, Snooze
from rowlock.observe import logs
from rowlock.storage.contract import Store

CANARY = "c4n4ry-S3CRET"

MESSAGES = [
    f"cannot connect to postgresql://app:{CANARY}@db.example.com/main",
    f"GET https://{CANARY}@api.example.com/v1 answered 500",
    f"GET https://api.example.com/v1?api_key={CANARY}&limit=5 answered 500",
    f"request headers: {{'Authorization': 'Bearer {CANARY}', 'Accept': '*/*'}}",
    f"Authorization: Token {CANARY}",
    f"X-Api-Key: {CANARY}",
    f'body was {{"password": "{CANARY}", "user": "ann"}}',
    f"login failed: password={CANARY}",
    f"client_secret: {CANARY}; scope: all",
    f"{'x' * 1960} https://user:{CANARY * 3}@host/",
]


@pytest.fixture
def debug_log() -> Log:
    """The log at debug level, tracebacks included."""
    log = Log()
    logs.configure("debug", "json", stream=log.stream)
    return log


def leaks(text: str | None) -> bool:
    """Whether the text contains the canary or a considerable part of it."""
    return any(CANARY[start : start + 6] in (text or "") for start in range(len(CANARY) - 5))


async def test_an_exceptions_message_is_stored_and_logged_without_them(app: Rowlock, debug_log: Log) -> None:
    kinds: list[Any] = [RuntimeError, Permanent, Retry, lambda message: Snooze(60, message)]

    @app.job("a", queue="q")
    async def a(job: Job, which: int, kind: int) -> None:
        raise kinds[kind](MESSAGES[which])

    for kind in range(len(kinds)):
        await app.enqueue_many(("a", {"which": which, "kind": kind}) for which in range(len(MESSAGES)))
    await drain(app)
    jobs = (await app.jobs(limit=100)).jobs
    assert len(jobs) == len(kinds) * len(MESSAGES)
    leaked = {job.error for job in jobs if leaks(job.error)}
    assert leaked == set()
    assert all(job.error for job in jobs)
    assert [line for line in debug_log.text.splitlines() if leaks(line)] == []


async def test_the_text_of_the_terminal_has_none_either(app: Rowlock) -> None:
    log = Log()
    logs.configure("debug", "text", stream=log.stream)

    @app.job("a")
    def a(job: Job) -> None:
        raise RuntimeError(f"login failed: password={CANARY}")

    await a.enqueue()
    await drain(app)
    assert "job.retried" in log.text
    assert not leaks(log.text)


async def test_payloads_are_never_logged(app: Rowlock, store: Store, clock: FakeClock, debug_log: Log) -> None:
    @app.job("a")
    async def a(job: Job, note: str, count: int = 0) -> None:
        if job.attempt == 1:
            raise RuntimeError("again")

    with pytest.raises(BadPayload) as refused:
        await a.enqueue(note=CANARY, count=CANARY)
    assert not leaks(str(refused.value))
    await a.enqueue(note=CANARY)
    bad = await put(store, type="a", payload=f'{{"note": "{CANARY}", "count": "{CANARY}"}}')
    await put(store, type="nobody", payload=f'{{"note": "{CANARY}"}}')
    for _ in range(2):
        await drain(app)
        clock.advance(2)
    assert not leaks(debug_log.text)
    found = await app.get(bad)
    assert found is not None
    assert not leaks(found.error)


@pytest.mark.every_store
async def test_the_password_of_the_database_is_not_in_what_a_failure_says(make_app: MakeApp, debug_log: Log) -> None:
    app = await make_app()
    assert "hunter2" not in app.store.url
    app.job("a")(lambda job: None)
    await app.enqueue("a")
    await drain(app)
    assert "hunter2" not in debug_log.text


async def test_the_list_of_secret_words_is_a_setting(make_app: MakeApp) -> None:
    app = await make_app(redact_keys="password,iban")

    @app.job("a")
    async def a(job: Job) -> None:
        raise Permanent(f"iban={CANARY} password: {CANARY} token=shown")

    job_id = (await a.enqueue()).job_id
    await drain(app)
    found = await app.get(job_id)
    assert found is not None
    assert found.error == "iban=[REDACTED] password: [REDACTED] token=shown"
