"""Redaction: secrets never leave. The one place that decides what a secret is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

REDACTED = "[REDACTED]"
DEFAULT_WORDS = ("password", "token", "secret", "key", "authorization")
_DEPTH_MAX = 50


class Redactor:
    """Replaces values under keys that contain one of the words, at any depth, and secrets inside strings."""

    def __init__(self, words: Sequence[str] = DEFAULT_WORDS) -> None:
        self._words = tuple(word.strip().lower() for word in words if word.strip())
        any_word = "|".join(map(re.escape, self._words)) or r"(?!)"
        self._inside = re.compile(
            # scheme://user:secret@host, https://token@host
            r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@/]+(?=@)|(?P<http>\bhttps?://)[^\s:/@]+(?=@)"
            # Authorization: Scheme secret
            r"|(?P<auth>\b[\w-]*authorization[\"']?\s*[=:]\s*[\"']?)(?!\[REDACTED\])(?:[a-z][\w-]*\s+)?[^\s\"',;}\])]+"
            # bearer secret, wherever it stands
            r"|(?P<bearer>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}"
            # ...token=secret, "api_key": "secret", password: secret
            rf"|(?P<pair>\b[\w-]*(?:{any_word})[\w-]*[\"']?\s*[=:]\s*)(?!\[REDACTED\])"
            r"(?:\"[^\"]*\"|'[^']*'|[^\s&,;\"'}\])]+)",
            re.IGNORECASE,
        )

    def is_secret(self, key: str) -> bool:
        lowered = key.lower()
        return any(word in lowered for word in self._words)

    def value(self, value: Any, depth: int = 0) -> Any:
        """A copy of JSON-like data without its secrets."""
        if depth > _DEPTH_MAX:
            return REDACTED
        if isinstance(value, dict):
            return {
                key: REDACTED if isinstance(key, str) and self.is_secret(key) else self.value(item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, depth + 1) for item in value]
        if isinstance(value, str):
            return self.text(value)
        return value

    def text(self, text: str) -> str:
        """A string without the secrets in its URLs, headers and assignments."""
        return self._inside.sub(lambda match: f"{match[match.lastgroup or 0]}{REDACTED}", text)
