"""Payloads: JSON only, with one text and one hash for the same content."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.errors import BadPayload, PayloadTooLarge
from rowlock.jobs.payload import encode, encode_result, fingerprint, loads

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Surrogates are no text.
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), json_values, max_size=5)


@dataclass
class Thing:
    x: int = 1


class Kind(Enum):
    ONE = 1


class Sub(dict[str, Any]):
    pass


@given(objects)
def test_what_goes_in_comes_out(payload: dict[str, Any]) -> None:
    text = encode(payload, "t", 10_000_000)
    assert loads(text) == payload
    assert json.loads(text) == payload


@given(objects)
def test_the_order_of_keys_does_not_change_the_hash(payload: dict[str, Any]) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(item) for key, item in reversed(value.items())}
        return [turned(item) for item in value] if isinstance(value, list) else value

    assert fingerprint("t", payload) == fingerprint("t", turned(payload))


def test_the_hash_is_sha_256_of_type_and_payload() -> None:
    assert fingerprint("t", {"b": 1, "a": "é"}) == hashlib.sha256('["t",{"a":"é","b":1}]'.encode()).hexdigest()
    assert fingerprint("t", {"a": 1}) != fingerprint("u", {"a": 1})
    assert fingerprint("t", {"a": 1}) != fingerprint("t", {"a": "1"})
    assert fingerprint("t", {"a": [1, 2]}) != fingerprint("t", {"a": [2, 1]})


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [None, float("-inf")],
        datetime(2030, 1, 1, tzinfo=UTC),
        date(2030, 1, 1),
        time(1),
        Decimal(1),
        b"x",
        {1},
        object(),
        Thing(),
        {1: 2},
        {None: 1},
        2**64,
        -(2**63) - 1,
        "\ud800",
        {"\ud800": 1},
    ],
    ids=lambda value: repr(value).partition(" at 0x")[0],  # an address is another one in each process
)
@pytest.mark.parametrize("beside", [{}, {"n": None}], ids=["alone", "beside null"])
def test_what_json_cannot_say_is_refused(value: Any, beside: dict[str, Any]) -> None:
    with pytest.raises(BadPayload, match=r"send: "):
        encode({"x": value} | beside, "send", 1_000)


def test_nesting_without_end_is_refused() -> None:
    payload: dict[str, Any] = {}
    payload["self"] = payload
    with pytest.raises(BadPayload):
        encode(payload, "t", 1_000)
    deep: Any = None
    for _ in range(2_000):
        deep = [deep]
    with pytest.raises(BadPayload):
        encode({"x": deep}, "t", 1_000_000)


@pytest.mark.parametrize("payload", [None, [], "x", 1, [("a", 1)], Sub(a=1), OrderedDict(a=1), Thing()], ids=repr)
def test_a_payload_is_a_plain_dict(payload: object) -> None:
    with pytest.raises(BadPayload, match=f"must be an object .a dict., not {type(payload).__name__}"):
        encode(payload, "t", 1_000)


def test_the_limit_is_in_bytes_and_inclusive() -> None:
    assert len(encode({"x": "é" * 10}, "t", 28)) == 18
    with pytest.raises(PayloadTooLarge, match="28 bytes, the limit is 27"):
        encode({"x": "é" * 10}, "t", 27)


def test_results_may_be_any_json() -> None:
    assert [encode_result(value, "t", 9) for value in (1, "a", None, [], True)] == ["1", '"a"', "null", "[]", "true"]
    with pytest.raises(BadPayload, match="result of t: not JSON"):
        encode_result(float("nan"), "t", 9)
