"""Payloads and results: JSON and nothing else; the same content has the same text and the same hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson

from rowlock.errors import BadPayload, PayloadTooLarge

_STRICT = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


def encode(payload: object, what: str, bytes_max: int) -> bytes:
    """JSON text of a payload, with its keys in the given order; raises BadPayload that says what is wrong."""
    if type(payload) is not dict:
        raise BadPayload(f"{what}: the payload must be an object (a dict), not {type(payload).__name__}")
    text = dumps(payload, what)
    if len(text) > bytes_max:
        raise PayloadTooLarge(
            f"{what}: the payload is {len(text):,} bytes, the limit is {bytes_max:,}; "
            "store the data elsewhere and pass a reference"
        )
    return text


def dumps(value: object, what: str) -> bytes:
    """JSON text of any value; raises BadPayload for what JSON cannot say."""
    try:
        text = orjson.dumps(value, None, _STRICT)
    except TypeError as error:
        raise BadPayload(f"{what}: not JSON: {error}") from None
    if b"null" in text:
        _refuse_nan(value, what)
    return text


def _refuse_nan(value: object, what: str) -> None:
    """NaN and the infinities have become null: look again, since that would lose a number silently."""
    try:
        json.dumps(value, allow_nan=False, default=str)
    except ValueError as error:
        raise BadPayload(f"{what}: not JSON: {error}") from None


def encode_result(result: object, type_name: str, bytes_max: int) -> str:
    """JSON text of what a handler gave; raises BadPayload where it is not JSON, or too much of it."""
    text = dumps(result, f"result of {type_name}")
    if len(text) > bytes_max:
        raise BadPayload(f"the result of {type_name} is {len(text):,} bytes, the limit is {bytes_max:,}")
    return text.decode()


def loads(text: str | bytes) -> Any:
    return orjson.loads(text)


def fingerprint(type_name: str, payload: object) -> str:
    """SHA-256 of type and payload, whatever the order of keys, as 64 hex digits."""
    canonical = orjson.dumps([type_name, payload], option=_STRICT | orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()
