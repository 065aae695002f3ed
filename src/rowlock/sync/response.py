"""Answers of services, and their default interpretation; a connector can provide its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

# Fields that the service itself fills in. The message may repeat what the caller sent: see _SAID_LIMITED.
_KINDS = ("category", "errorType", "policyName")
_LIMITED = frozenset({"RATELIMIT_EXCEEDED", "RATE_LIMIT", "RATE_LIMITS"})
# A 400 may name the limit in its message only. Quoted text does not count: it may be the caller's own.
_SAID_LIMITED = re.compile(r"(?:^|[\s(\[:])RATELIMIT_EXCEEDED(?=$|[\s)\].,:;])")
_REFUSED = frozenset({"MISSING_SCOPES"})
_CATEGORIES = ("category", "errorType", "code", "error")
_MESSAGES = ("message", "error_description", "detail", "error")
_REQUEST_IDS = ("x-request-id", "x-hubspot-correlation-id", "x-correlation-id", "request-id")
_TEXT_LENGTH_MAX = 300
_WORD_LENGTH_MAX = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a service: status, headers (names in lower case) and body."""

    status: int
    json: Any = None  # None: empty, or not JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""  # the body if it is not JSON

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def category(self) -> str | None:
        """The error category in the body, at most 100 characters; None if there is none."""
        found = self._word(_CATEGORIES)
        return None if found is None else found[:_WORD_LENGTH_MAX]

    @property
    def message(self) -> str:
        """The service's message, at most 300 characters."""
        found = self._word(_MESSAGES) or self.text
        return " ".join(found.split())[:_TEXT_LENGTH_MAX]

    @property
    def request_id(self) -> str | None:
        """The id by which the service's support finds this call; None if there is none."""
        if isinstance(self.json, dict) and isinstance(self.json.get("correlationId"), str):
            return str(self.json["correlationId"])[:_WORD_LENGTH_MAX]
        found = next((self.headers[name] for name in _REQUEST_IDS if name in self.headers), None)
        return None if found is None else found[:_WORD_LENGTH_MAX]

    def cleaned(self, plain: Callable[[str], str]) -> Answer:
        """Return a copy with `plain` applied to its texts, before truncation: half a secret is one too."""
        body = self.json
        if isinstance(body, dict):
            body = {name: plain(value) if isinstance(value, str) else value for name, value in body.items()}
        headers = {name: plain(value) for name, value in self.headers.items()}
        return Answer(self.status, body, headers, plain(self.text))

    def _word(self, names: tuple[str, ...]) -> str | None:
        if not isinstance(self.json, dict):
            return None
        return next((self.json[name] for name in names if isinstance(self.json.get(name), str)), None)


def is_refused(answer: Answer) -> bool:
    """Whether the service refused the credential or a missing scope: retrying cannot help."""
    return answer.status in (401, 403) or _is_of(answer, _REFUSED)


def wait_of(answer: Answer) -> float | None:
    """Return how many seconds to make no call after "too many calls", 0 if the answer does not say; else None."""
    limited = answer.status == 429 or _is_of(answer, _LIMITED) or _says_limited(answer)
    return retry_after(answer.headers) if limited else None


def _says_limited(answer: Answer) -> bool:
    return answer.status == 400 and _SAID_LIMITED.search(answer.message) is not None


def _is_of(answer: Answer, words: frozenset[str]) -> bool:
    if not isinstance(answer.json, dict):
        return False
    return any(isinstance(word := answer.json.get(name), str) and word in words for name in _KINDS)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of a Retry-After header (a number or a date); 0 if it is missing or malformed."""
    text = headers.get("retry-after", "").strip()
    try:
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        moment = parsedate_to_datetime(text)
        # Relative to the service's own clock if it sends a Date header.
        now = parsedate_to_datetime(headers["date"]) if "date" in headers else datetime.now(UTC)
        return max(0.0, (moment - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
