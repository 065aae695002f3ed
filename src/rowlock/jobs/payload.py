"""Payloads and results: JSON and nothing else. The hash of a payload does not depend on the order of its keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import orjson

from rowlock.errors import BadPayload, PayloadTooLarge
from rowlock.observe.redaction import Redactor

_STRICT = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


def encode(payload: object, what: str, bytes_max: int) -> str:
    """Return a payload as JSON text, its keys in the given order; raises BadPayload or PayloadTooLarge."""
    if type(payload) is not dict:
        raise BadPayload(f"{what}: the payload must be an object (a dict), not {type(payload).__name__}")
    try:
        return _dumps(payload, bytes_max)
    except _TooLong as error:
        raise PayloadTooLarge(
            f"{what}: the payload is {error.size:,} bytes, the limit is {bytes_max:,}; "
            "store the data elsewhere and pass a reference"
        ) from None
    except (TypeError, ValueError) as error:
        raise BadPayload(f"{what}: not JSON: {error}") from None


class _TooLong(Exception):
    def __init__(self, size: int) -> None:
        self.size = size


def _dumps(value: object, bytes_max: int) -> str:
    text = orjson.dumps(value, None, _STRICT)
    if len(text) > bytes_max:
        raise _TooLong(len(text))
    decoded = text.decode()
    if "null" in decoded:
        # orjson writes NaN and infinities as null: check again, since that would lose a number silently.
        json.dumps(value, allow_nan=False, default=str)
    return decoded


def encode_result(result: object, type_name: str, bytes_max: int) -> str:
    """Return a handler's result as JSON text; raises BadPayload if it is not JSON or too large."""
    try:
        return _dumps(result, bytes_max)
    except _TooLong as error:
        raise BadPayload(f"the result of {type_name} is {error.size:,} bytes, the limit is {bytes_max:,}") from None
    except (TypeError, ValueError) as error:
        raise BadPayload(f"result of {type_name}: not JSON: {error}") from None


def loads(text: str | bytes) -> Any:
    return orjson.loads(text)


def payload_hash(payload: Mapping[str, Any], redact: Redactor) -> str:
    """Return 16 hex digits of a payload's SHA-256, independent of the order of keys and of secrets."""
    canonical = orjson.dumps(_without_secrets(payload, redact), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:16]


def _without_secrets(value: Any, redact: Redactor) -> Any:
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if not redact.is_secret(str(key))}
        return {key: _without_secrets(item, redact) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item, redact) for item in value]
    return value


def fingerprint(type_name: str, payload: object) -> str:
    """Return the SHA-256 of type and payload as 64 hex digits, independent of the order of keys."""
    canonical = orjson.dumps([type_name, payload], option=_STRICT | orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()
