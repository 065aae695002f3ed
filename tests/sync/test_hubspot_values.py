"""Values sent to HubSpot: addresses and amounts; and the limits in its responses."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from rowlock.sync.hubspot import Currency, Email, MinorUnits, decimal_amount, is_refused, limited, normal_email, spent
from rowlock.sync.hubspot.amounts import minor_digits
from rowlock.sync.response import Answer


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("Ada@Example.COM", "ada@example.com"),
        ("  ada@example.com\n", "ada@example.com"),
        ("ADA+club@example.co.uk", "ada+club@example.co.uk"),
        ("A\u0308@example.com", "\u00e4@example.com"),  # a letter and its mark, and the two as one sign
    ],
)
def test_addresses_that_differ_in_case_or_space_are_the_same(given: str, normal: str) -> None:
    assert normal_email(given) == normal
    assert normal_email(normal) == normal


@pytest.mark.parametrize(
    "address",
    [
        *("", "ada", "@example.com", "ada@", "ada@.", "ada@localhost", "a@b@example.com", "a b@example.com"),
        *("a@example.com,b@example.com", "ada@example.com;x", "Ada <ada@example.com>", "a\x00@example.com"),
        "a" * 200 + "@example.com",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Email).validate_python(address)


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [
        (0, "USD", "0.00"),
        (5, "USD", "0.05"),
        (1_230, "EUR", "12.30"),
        (999_999_999_999_999, "USD", "9999999999999.99"),
        (1_230, "JPY", "1230"),
        (1_230, "KWD", "1.230"),
        (-5, "USD", "-0.05"),
    ],
)
def test_an_amount_is_written_with_the_digits_of_its_currency(minor: int, currency: str, text: str) -> None:
    assert decimal_amount(minor, currency) == text


@given(st.integers(-(10**15), 10**15), st.sampled_from(["USD", "JPY", "KWD"]))
def test_no_cent_is_lost(minor: int, currency: str) -> None:
    assert Decimal(decimal_amount(minor, currency)).scaleb(minor_digits(currency)) == minor


@pytest.mark.parametrize("amount", [12.5, "12", True, -1, 10**15 + 1, None])
def test_an_amount_that_is_not_in_whole_minor_units_is_refused(amount: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(MinorUnits).validate_python(amount)


def test_a_currency_is_three_letters_in_upper_case() -> None:
    assert TypeAdapter(Currency).validate_python("usd") == "USD"
    for wrong in ("US", "DOLLAR", "U5D", "ııı"):
        with pytest.raises(ValidationError):
            TypeAdapter(Currency).validate_python(wrong)


def out_of_calls(policy: str | None, **headers: str) -> Answer:
    body = {"status": "error", "errorType": "RATE_LIMIT", "message": "You have reached your limit."}
    return Answer(429, body | ({"policyName": policy} if policy else {}), headers)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (out_of_calls("TEN_SECONDLY_ROLLING"), 10.0),
        (out_of_calls("TEN_SECONDLY_ROLLING", **{"x-hubspot-ratelimit-interval-milliseconds": "2500"}), 2.5),
        (out_of_calls("TEN_SECONDLY_ROLLING", **{"x-hubspot-ratelimit-interval-milliseconds": "9" * 30}), 60.0),
        (out_of_calls("TEN_SECONDLY_ROLLING", **{"x-hubspot-ratelimit-interval-milliseconds": "soon"}), 10.0),
        (out_of_calls("SECONDLY"), 1.0),
        (out_of_calls("DAILY"), 3_600.0),
        (out_of_calls(None), 0.0),
        (out_of_calls("SOMETHING_NEW"), 0.0),
        (out_of_calls("SECONDLY", **{"retry-after": "7"}), 7.0),
        (Answer(400, {"category": "RATELIMIT_EXCEEDED"}), 0.0),
        (Answer(429, None, {}, "<html>slow down</html>"), 0.0),
        (Answer(429, ["not", "an", "object"]), 0.0),
        (Answer(400, {"category": "VALIDATION_ERROR"}), None),
        (Answer(500, None), None),
    ],
)
def test_how_long_nobody_calls_after_an_error(answer: Answer, seconds: float | None) -> None:
    assert limited(answer) == seconds


def test_the_last_call_of_an_interval_is_followed_by_a_short_rest() -> None:
    interval = {"x-hubspot-ratelimit-interval-milliseconds": "2000"}
    assert spent(Answer(200, {}, {"x-hubspot-ratelimit-remaining": "0", **interval})) == 0.2
    assert spent(Answer(200, {}, {"x-hubspot-ratelimit-remaining": "1", **interval})) is None
    assert spent(Answer(200, {})) is None


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (Answer(401, {"category": "INVALID_AUTHENTICATION"}), True),
        (Answer(403, None), True),
        (Answer(400, {"category": "MISSING_SCOPES"}), True),
        (Answer(404, {"category": "OBJECT_NOT_FOUND"}), False),
        (Answer(423, None), False),
    ],
)
def test_who_is_refused_needs_a_person(answer: Answer, refused: bool) -> None:
    assert is_refused(answer) is refused
