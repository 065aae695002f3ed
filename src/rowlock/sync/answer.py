"""What a service answers, and what that means unless a connector knows better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

# Fields that hold a word of the service's own. Never the message: it repeats what the caller sent.
_KINDS = ("category", "errorType", "policyName")
_LIMITED = frozenset({"RATELIMIT_EXCEEDED", "RATE_LIMIT", "RATE_LIMITS"})
_REFUSED = frozenset({"MISSING_SCOPES"})
_CATEGORIES = ("category", "errorType", "code", "error")
_MESSAGES = ("message", "error_description", "detail", "error")
_REQUEST_IDS = ("x-request-id", "x-hubspot-correlation-id", "x-correlation-id", "request-id")
_TEXT_LENGTH_MAX = 300
_WORD_LENGTH_MAX = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a service: its status, its headers (their names in lower case), and its body."""

    status: int
    json: Any = None  # None: nothing, or not JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""  # of a body that is not JSON

    @property
    def ok(self) -> bool:
        """Whether it is of the kind 2xx."""
        return 200 <= self.status < 300

    @property
    def category(self) -> str | None:
        """What kind of error the body names."""
        found = self._word(_CATEGORIES)
        return None if found is None else found[:_WORD_LENGTH_MAX]

    @property
    def message(self) -> str:
        """What the service says about it, in short."""
        found = self._word(_MESSAGES) or self.text
        return " ".join(found.split())[:_TEXT_LENGTH_MAX]

    @property
    def request_id(self) -> str | None:
        """By which the service's own people find this call."""
        if isinstance(self.json, dict) and isinstance(self.json.get("correlationId"), str):
            return str(self.json["correlationId"])[:_WORD_LENGTH_MAX]
        found = next((self.headers[name] for name in _REQUEST_IDS if name in self.headers), None)
        return None if found is None else found[:_WORD_LENGTH_MAX]

    def cleaned(self, plain: Callable[[str], str]) -> Answer:
        """The same with what it says in plain: before it is cut, since half a secret is one too."""
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
    """Whether the credential, or a scope that it lacks, is the reason: trying again cannot help."""
    return answer.status in (401, 403) or _is_of(answer, _REFUSED)


def wait_of(answer: Answer) -> float | None:
    """None unless it means "too many calls"; else for how long to make none: 0 where it does not say."""
    limited = answer.status == 429 or _is_of(answer, _LIMITED)
    return retry_after(answer.headers) if limited else None


def _is_of(answer: Answer, words: frozenset[str]) -> bool:
    if not isinstance(answer.json, dict):
        return False
    return any(isinstance(word := answer.json.get(name), str) and word in words for name in _KINDS)


def retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of a Retry-After header, which may be a number or a date; 0 without one that can be read."""
    text = headers.get("retry-after", "").strip()
    try:
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        moment = parsedate_to_datetime(text)
        # Counted from the service's own clock, where it says what that shows.
        now = parsedate_to_datetime(headers["date"]) if "date" in headers else datetime.now(UTC)
        return max(0.0, (moment - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
