"""Notifications: what they say about dead letters, and that every target gets them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rowlock import SettingsError
from rowlock.errors import NoticeFailed
from rowlock.observe import notifications as notices
from rowlock.observe.guidance import OtherSide, about_job
from rowlock.observe.notifications import GROUPS_MAX, Notifier, check_targets, compose
from rowlock.observe.redaction import Redactor
from rowlock.storage.reliability import DeadLetters
from unit.test_webhook import Receiver, serve

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
FIRST = datetime(2026, 11, 16, 1, 30, tzinfo=UTC)
IDS = tuple(f"01932c07-2ab0-7000-8000-00000000000{n}" for n in (3, 2, 1))  # the newest first
DEATHS = DeadLetters(
    "contact.update", "hubspot", 10_000, FIRST, FIRST + timedelta(minutes=5), 5, IDS, "TimeoutError: no answer"
)
SCOPES_PAGE = "https://app.example.test/apps"
HUBSPOT = OtherSide("hubspot", SCOPES_PAGE)
OTHERS = {"contact.update": HUBSPOT, "hubspot.create_contact": HUBSPOT}
ONE = replace(DEATHS, job_name="send.email", queue_name="mail", count=1, job_ids=IDS[:1], last_at=FIRST)


def text_of(*deaths: DeadLetters, **given: Any) -> str:
    return compose("n1", deaths, Redactor(), **given).text


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from serve()


@pytest.fixture
def other() -> Iterator[Receiver]:
    yield from serve()


def notifier(*targets: str, webhooks: tuple[str, ...] = (), allow_private: bool = True) -> Notifier:
    return Notifier(targets, webhooks, SECRET, allow_private=allow_private, redact=Redactor())


def apprise_url(receiver: Receiver, path: str = "staff") -> str:
    return f"json://127.0.0.1:{receiver.port}/{path}"


# -- what is said ----------------------------------------------------------------------------------


def test_ten_thousand_deaths_are_one_message_with_all_that_staff_need() -> None:
    notice = compose("n1", [DEATHS], Redactor(), "https://jobs.test/dead")
    assert notice.title == "Rowlock: 10,000 jobs failed"
    assert notice.text == (
        "contact.update: 10,000 jobs failed\n"
        "  queue:      hubspot\n"
        "  when:       2026-11-16T01:35:00Z (first 2026-11-16T01:30:00Z)\n"
        f"  last jobs:  {', '.join(IDS)}\n"
        "  attempts:   5\n"
        "  last error: TimeoutError: no answer\n"
        "  what to do:\n"
        f"    - See what happened: rowlock jobs show {IDS[0]}\n"
        "    - See all of them: rowlock dead list --type contact.update\n"
        "    - When the cause is fixed, retry: rowlock dead retry --type contact.update\n"
        "\n"
        "Dead letters: https://jobs.test/dead"
    )


def test_one_death_is_told_as_one() -> None:
    notice = compose("n1", [ONE], Redactor())
    assert notice.title == "Rowlock: job send.email failed"
    assert f"  job:        {IDS[0]}\n" in notice.text
    assert "(first" not in notice.text
    assert f"retry: rowlock dead retry {IDS[0]}" in notice.text


@pytest.mark.parametrize(
    "reason",
    [
        "HubSpotError: MISSING_SCOPES: crm.objects.contacts.write",
        "CallRefused: POST /contacts: 200 the key was revoked",
        "HTTPStatusError: Client error '401 Unauthorized' for url 'https://api.hubapi.com/crm'",
        "HTTPError: 403 Client Error: Forbidden for url: https://api.hubapi.com",
        "ForbiddenException: (403)",
        "ClientResponseError: 401, message='Unauthorized'",
        "the API answered 403",
        "Permanent: status=401",
    ],
)
def test_refused_credentials_and_scopes_are_told_with_the_page_to_set_them(reason: str) -> None:
    text = text_of(replace(DEATHS, reason=reason), others=OTHERS)
    assert "credentials or their scopes" in text
    assert f"The scopes of hubspot are set at {SCOPES_PAGE}\n" in text
    assert about_job(IDS[0], reason, HUBSPOT)[0].endswith(SCOPES_PAGE)


def test_a_job_that_calls_nobody_we_know_is_sent_to_no_page() -> None:
    text = text_of(replace(DEATHS, reason="the API answered 403", job_name="send.email"), others=OTHERS)
    assert "credentials or their scopes" in text
    assert SCOPES_PAGE not in text
    assert ".*" not in text
    unset = {"contact.update": OtherSide("hubspot")}
    assert "are set at" not in text_of(replace(DEATHS, reason="the API answered 403"), others=unset)


def test_all_jobs_of_an_integration_may_be_run_again() -> None:
    again = "    - To retry all failed jobs of hubspot: rowlock dead retry --type 'hubspot.*'"
    assert again in text_of(DEATHS, others=OTHERS).splitlines()
    assert about_job(IDS[0], "TimeoutError", HUBSPOT) == [
        f"When the cause is fixed, retry it: rowlock dead retry {IDS[0]}",
        "To retry all failed jobs of hubspot: rowlock dead retry --type 'hubspot.*'",
    ]
    assert about_job(IDS[0], "TimeoutError", None) == [
        f"When the cause is fixed, retry it: rowlock dead retry {IDS[0]}"
    ]


@pytest.mark.parametrize(
    "reason",
    [
        "TimeoutError: no answer after 30 s",
        "HTTPStatusError: Server error '503 Service Unavailable'",
        "BadRow: row 403 has no email",
        "line 401 is too long",
        "took 401ms",
        "1,403 rows failed",
        "version 4.401.2",
        "invoice 2026-403",
        "https://api.test/orders/401",
    ],
)
def test_other_errors_do_not_send_anyone_to_the_scopes_page(reason: str) -> None:
    assert SCOPES_PAGE not in text_of(replace(DEATHS, reason=reason), others=OTHERS)


def test_secrets_in_an_error_are_not_told() -> None:
    reason = "boom: https://u:hunter2@db.test/ token=s3cret Authorization: Bearer abcdefghijkl"
    notice = compose("n1", [replace(DEATHS, reason=reason)], Redactor())
    for secret in ("hunter2", "s3cret", "abcdefghijkl"):
        assert secret not in notice.text
        assert secret.encode() not in notice.body


def test_a_secret_is_not_left_in_half_by_the_cut() -> None:
    reason = "x" * (notices.ERROR_LENGTH_MAX - 9) + " token=abcdefghijklmnop"
    assert "abc" not in text_of(replace(DEATHS, reason=reason))


def test_a_long_error_on_many_lines_is_cut_and_one_line() -> None:
    text = text_of(replace(DEATHS, reason="first\n  second\n" + "x" * 5_000))
    line = next(line for line in text.splitlines() if "last error" in line)
    assert line.startswith("  last error: first second xxx")
    assert line.endswith("x…")
    assert len(line) == len("  last error: ") + notices.ERROR_LENGTH_MAX + 1


def test_an_error_that_was_not_recorded() -> None:
    assert "last error: none was recorded" in text_of(replace(DEATHS, reason=""))


def test_many_groups_are_the_first_twenty_and_a_number() -> None:
    groups = [replace(DEATHS, job_name=f"type.{n}", count=2) for n in range(GROUPS_MAX + 3)]
    notice = compose("n1", groups, Redactor())
    assert notice.title == f"Rowlock: {2 * (GROUPS_MAX + 3)} jobs failed"
    assert "type.19:" in notice.text
    assert "type.20" not in notice.text
    assert "… and 3 more job types: rowlock dead list" in notice.text
    data = json.loads(notice.body)["data"]
    assert (len(data["groups"]), data["moreGroups"], data["count"]) == (20, 3, 46)
    assert "more job types" not in text_of(*groups[:GROUPS_MAX])


def test_a_message_stays_small_however_long_its_errors() -> None:
    groups = [replace(DEATHS, job_name=f"{n:03}" + "n" * 197, reason="ü" * 2_000) for n in range(1_000)]
    assert len(compose("n1", groups, Redactor()).body) < 100_000


def test_a_job_name_is_quoted_for_the_shell() -> None:
    text = text_of(replace(DEATHS, job_name="a; rm -rf $HOME"))
    assert "rowlock dead list --type 'a; rm -rf $HOME'" in text


def test_the_json_has_the_same_parts() -> None:
    event = json.loads(compose("n1", [DEATHS], Redactor(), "https://jobs.test/dead").body)
    assert (event["type"], event["timestamp"]) == ("jobs.dead", "2026-11-16T01:35:00Z")
    data = event["data"]
    assert (data["noticeId"], data["queueUrl"]) == ("n1", "https://jobs.test/dead")
    assert data["title"] == "Rowlock: 10,000 jobs failed"
    (group,) = data["groups"]
    guidance = group.pop("guidance")
    assert "rowlock dead retry" in guidance[-1]
    assert group == {
        "jobName": "contact.update",
        "queueName": "hubspot",
        "count": 10_000,
        "firstAt": "2026-11-16T01:30:00Z",
        "lastAt": "2026-11-16T01:35:00Z",
        "attempts": 5,
        "retryCount": 4,
        "jobIds": list(IDS),
        "lastError": "TimeoutError: no answer",
        "integration": None,
        "operation": None,
        "scopesUrl": None,
    }


def test_the_json_names_the_integration_its_operation_and_the_page_of_its_scopes() -> None:
    refused = replace(DEATHS, job_name="hubspot.create_contact", reason="CallRefused: 403 MISSING_SCOPES")
    for deaths, page in ((refused, SCOPES_PAGE), (replace(refused, reason="TimeoutError"), None)):
        (group,) = json.loads(compose("n1", [deaths], Redactor(), others=OTHERS).body)["data"]["groups"]
        told = (group["integration"], group["operation"], group["scopesUrl"])
        assert told == ("hubspot", "create_contact", page)


# -- that it is sent -------------------------------------------------------------------------------


async def test_targets_and_webhooks_get_the_message(receiver: Receiver, other: Receiver) -> None:
    await notifier(apprise_url(receiver), webhooks=(other.url,)).send("n1", [DEATHS], "https://jobs.test/dead")
    ((path, _, body),) = receiver.requests
    said = json.loads(body)
    assert (path, said["type"], said["title"]) == ("/staff", "failure", "Rowlock: 10,000 jobs failed")
    assert said["message"] == compose("n1", [DEATHS], Redactor(), "https://jobs.test/dead").text
    ((_, headers, body),) = other.requests
    assert json.loads(body)["data"]["text"] == said["message"]
    content = f"n1.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
    assert (headers["webhook-id"], headers["webhook-signature"]) == ("n1", f"v1,{expected}")


async def test_no_deaths_no_message(receiver: Receiver) -> None:
    await notifier(apprise_url(receiver), webhooks=(receiver.url,)).send("n1", [])
    assert receiver.requests == []


async def test_without_targets_nothing_is_sent() -> None:
    await Notifier([], [], None, allow_private=False, redact=Redactor()).send("n1", [DEATHS])


async def test_one_target_that_fails_keeps_no_other_from_its_message(receiver: Receiver, other: Receiver) -> None:
    receiver.status = 500
    broken = apprise_url(receiver, "s3cret-path?+X-Api=hunter22")
    with pytest.raises(NoticeFailed) as caught:
        await notifier(broken, apprise_url(other), webhooks=(receiver.url, other.url)).send("n1", [DEATHS])
    assert len(other.requests) == 2
    text = str(caught.value)
    assert text.startswith("notification n1 did not reach 2 of 4 targets: ROWLOCK_NOTIFY_TARGETS entry 1 (json://…): ")
    assert f"; ROWLOCK_WEBHOOK_URLS entry 1 (http://127.0.0.1:{receiver.port}/…): it answered 500" in text
    for secret in ("s3cret", "hunter22", "/hooks/a", "b=c"):
        assert secret not in text


async def test_tried_again_it_goes_to_those_that_have_not_taken_it(receiver: Receiver, other: Receiver) -> None:
    sender = notifier(apprise_url(receiver), webhooks=(other.url,))
    other.status = 503
    with pytest.raises(NoticeFailed, match="1 of 2 targets: ROWLOCK_WEBHOOK_URLS entry 1"):
        await sender.send("n1", [DEATHS])
    other.status = 204
    await sender.send("n1", [DEATHS])
    assert (len(receiver.requests), len(other.requests)) == (1, 2)
    assert {headers["webhook-id"] for _, headers, _ in other.requests} == {"n1"}
    await sender.send("n2", [DEATHS])
    assert (len(receiver.requests), len(other.requests)) == (2, 3)


async def test_what_is_remembered_for_that_has_a_limit(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_REMEMBERED_MAX", 3)
    sender = notifier(webhooks=(receiver.url,))
    for number in range(10):
        await sender.send(f"n{number}", [DEATHS])
    assert len(sender._reached) == 3


async def test_a_webhook_to_a_private_address_is_refused_unless_allowed(receiver: Receiver) -> None:
    with pytest.raises(NoticeFailed, match=r"ROWLOCK_WEBHOOK_URLS entry 1 .*private address"):
        await notifier(webhooks=(receiver.url,), allow_private=False).send("n1", [DEATHS])
    assert receiver.requests == []


async def test_a_slow_target_holds_up_no_event_loop(receiver: Receiver, other: Receiver) -> None:
    receiver.stalled = threading.Event()

    async def release() -> None:
        while not other.requests:
            await notifier(webhooks=(other.url,)).send("n2", [DEATHS])
        receiver.stalled.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(notifier(apprise_url(receiver)).send("n1", [DEATHS]))
        tasks.create_task(release())
    assert len(receiver.requests) == 1


async def test_a_fault_of_a_library_is_named_by_its_kind_only(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise LookupError("hunter2")

    monkeypatch.setattr(notices, "_send", broken)
    with pytest.raises(NoticeFailed, match=r"\(json://…\): LookupError$"):
        await notifier(apprise_url(receiver)).send("n1", [DEATHS])


# -- what is refused at start ----------------------------------------------------------------------


def test_good_targets_are_accepted() -> None:
    check_targets([], [], None, allow_private=False)
    check_targets(
        ["mailtos://user:password@example.com?to=staff@example.com", "json://localhost/x"],
        ["https://hooks.test/a", "http://hooks.test"],
        SECRET,
        allow_private=False,
    )
    check_targets([], ["http://127.0.0.1:9/"], SECRET, allow_private=True)


@pytest.mark.parametrize("target", ["", "nonsense", "bogus://s3cret", "mailto://", "slack://s3cret", "://s3cret"])
def test_a_malformed_target_is_refused(target: str) -> None:
    with pytest.raises(SettingsError, match=r"^ROWLOCK_NOTIFY_TARGETS: entry 2 .*allowed are URLs such as") as caught:
        check_targets(["json://localhost/x", target], [], None, allow_private=False)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "hooks.test", "ftp://u:s3cret@hooks.test", "http://10.0.0.1/s3cret", "http://[::1]"]
)
def test_a_malformed_webhook_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^ROWLOCK_WEBHOOK_URLS: entry 1 is .*; allowed are https://") as caught:
        check_targets([], [url], SECRET, allow_private=False)
    assert "s3cret" not in str(caught.value)


def test_webhooks_need_a_good_secret() -> None:
    for nothing in (None, ""):
        check_targets([], [], nothing, allow_private=False)
        with pytest.raises(SettingsError, match=r"^ROWLOCK_WEBHOOK_SECRET: required to sign"):
            check_targets([], ["https://hooks.test"], nothing, allow_private=False)
    for webhooks in ([], ["https://hooks.test"]):
        with pytest.raises(SettingsError, match=r"^ROWLOCK_WEBHOOK_SECRET: must be whsec_"):
            check_targets([], webhooks, "hunter2", allow_private=False)


def test_the_number_of_targets_has_a_limit() -> None:
    most = ["https://hooks.test"] * notices.TARGETS_MAX
    check_targets([], most, SECRET, allow_private=False)
    with pytest.raises(SettingsError, match=r"^ROWLOCK_WEBHOOK_URLS: names 21 targets, the limit is 20"):
        check_targets([], [*most, most[0]], SECRET, allow_private=False)
    with pytest.raises(SettingsError, match=r"^ROWLOCK_NOTIFY_TARGETS: names 21 targets"):
        check_targets(["json://localhost"] * 21, [], None, allow_private=False)


def test_without_apprise_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    notices._apprise.cache_clear()
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(
        SettingsError, match=r"ROWLOCK_NOTIFY_TARGETS: .* need apprise: pip install 'rowlock\[notify\]'"
    ):
        check_targets(["json://localhost"], [], None, allow_private=False)
