"""The rules of tokens, of requests with an idempotency key, and of alerts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rowlock.control import alerts, requests, tokens
from rowlock.control.decide import later
from rowlock.control.requests import NewRequest
from rowlock.storage.access import RequestAnswer, RequestRecord, RequestState, Role, StoredToken
from rowlock.storage.kinds import MOMENT
from rowlock.storage.reliability import Alert

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

# -- tokens ------------------------------------------------------------------------------------------

TOKEN = StoredToken("t", "digest", "deploy", Role.VIEWER, None, NOW - MINUTE, None, None, None)


@pytest.mark.parametrize(
    ("expires_at", "revoked_at", "valid", "ends_at"),
    [
        (None, None, True, None),
        (NOW + MOMENT, None, True, NOW + MOMENT),
        (NOW, None, False, NOW),
        (None, NOW, False, NOW),
        (NOW + MINUTE, NOW, False, NOW),
        (NOW - MINUTE, NOW, False, NOW - MINUTE),
    ],
)
def test_a_token_is_valid_until_it_expires_or_is_revoked(
    expires_at: datetime | None, revoked_at: datetime | None, valid: bool, ends_at: datetime | None
) -> None:
    token = replace(TOKEN, expires_at=expires_at, revoked_at=revoked_at)
    assert tokens.is_valid(token, NOW) is valid
    assert tokens.ends_at(token) == ends_at


def test_a_token_is_revoked_once() -> None:
    revoked = replace(TOKEN, revoked_at=NOW)
    assert tokens.revoked(None, NOW) == (None, False)
    assert tokens.revoked(TOKEN, NOW) == (revoked, True)
    assert tokens.revoked(revoked, NOW + MINUTE) == (revoked, True)


def test_the_last_use_of_a_token_moves_forward_only() -> None:
    touched = replace(TOKEN, last_used_at=NOW)
    assert tokens.touched(None, NOW) == (None, None)
    assert tokens.touched(TOKEN, NOW) == (touched, None)
    assert tokens.touched(touched, NOW - MINUTE) == (touched, None)


# -- requests ----------------------------------------------------------------------------------------

NEW = NewRequest("key", "fingerprint", "mine", keep_seconds=3_600, stale_seconds=60)
RUNNING = RequestRecord("key", "fingerprint", "first", NOW - MINUTE, False, NOW + MINUTE, None, None)
STALE = replace(RUNNING, begun_at=NOW - MINUTE - MOMENT)
RELEASED = replace(RUNNING, released=True)
DONE = replace(STALE, status=201, body="{}")
OTHER = replace(STALE, fingerprint="another")
TABLE = {
    "unknown": (None, RequestState.NEW, "mine"),
    "expired": (replace(DONE, expires_at=NOW), RequestState.NEW, "mine"),
    "expired_other": (replace(OTHER, expires_at=NOW), RequestState.NEW, "mine"),
    "running": (RUNNING, RequestState.RUNNING, "first"),
    "stale": (STALE, RequestState.BROKEN_OFF, "first"),
    "released": (RELEASED, RequestState.BROKEN_OFF, "first"),
    "done": (DONE, RequestState.DONE, "first"),
    "released_done": (replace(DONE, released=True), RequestState.DONE, "first"),
    "other": (OTHER, RequestState.OTHER, "first"),
    "other_done": (replace(DONE, fingerprint="another"), RequestState.OTHER, "first"),
}


@pytest.mark.parametrize(("request_", "state", "job_id"), TABLE.values(), ids=TABLE)
def test_the_state_of_a_request_decides(request_: RequestRecord | None, state: RequestState, job_id: str) -> None:
    after, answer = requests.begun(request_, NEW, NOW)
    if state in (RequestState.NEW, RequestState.BROKEN_OFF):
        assert answer == RequestAnswer(state, job_id, NOW)
        assert after == RequestRecord("key", "fingerprint", job_id, NOW, False, NOW + 60 * MINUTE, None, None)
    else:
        assert request_ is not None
        response = (201, "{}") if state is RequestState.DONE else (None, None)
        assert answer == RequestAnswer(state, job_id, request_.begun_at, *response)
        assert after is request_


def test_every_try_is_told_apart_though_the_clock_stands_still() -> None:
    before = replace(RELEASED, begun_at=NOW + MINUTE)
    assert requests.begun(before, NEW, NOW).answer.begun_at == NOW + MINUTE + MOMENT


@pytest.mark.parametrize(
    ("request_", "is_open"),
    [(None, False), (RUNNING, True), (RELEASED, True), (STALE, False), (replace(RUNNING, status=201, body=""), False)],
)
def test_only_the_current_try_ends_a_request_and_once(request_: RequestRecord | None, is_open: bool) -> None:
    assert requests.is_open(request_, RUNNING.begun_at) is is_open


# -- alerts ------------------------------------------------------------------------------------------


def test_an_alert_is_raised_once_and_cleared_once() -> None:
    alert = Alert("spike", NOW)
    assert alerts.raised(None, "spike", NOW) == (alert, True)
    assert alerts.raised(alert, "spike", NOW + MINUTE) == (alert, False)
    assert alerts.cleared(alert, NOW + MINUTE) == (None, NOW)
    assert alerts.cleared(None, NOW) == (None, None)


# -- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "micros"),
    [(60, 60_000_000), (0.0004, 1_000), (1.1, 1_100_000), (-0.0004, 0), (-1.1, -1_100_000), (0, 0)],
)
def test_a_duration_is_rounded_up_to_what_every_store_keeps(seconds: float, micros: int) -> None:
    assert later(NOW, seconds) - NOW == timedelta(microseconds=micros)


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_a_time_that_never_comes_is_far_away(seconds: float) -> None:
    assert later(NOW, seconds).year > 2_900
    assert later(NOW, -seconds).year < 1_100
