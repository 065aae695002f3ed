"""Redaction: secrets never leave. The one place that decides what a secret is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

REDACTED = "[REDACTED]"
DEFAULT_WORDS = ("password", "token", "secret", "key", "authorization")
TEXT_MAX = 200_000
_DEPTH_MAX = 50


class Redactor:
    """Replaces values under keys that contain one of the words, at any depth, and secrets inside strings."""

    def __init__(self, words: Sequence[str] = DEFAULT_WORDS) -> None:
        self._words = tuple(word.strip().lower() for word in words if word.strip())
        self._inside = re.compile(_inside(self._words), re.IGNORECASE)

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

    def payload(self, text: str) -> str:
        """The same for JSON text, which stays JSON."""
        return orjson.dumps(self.value(orjson.loads(text))).decode()

    def text(self, text: str) -> str:
        """A string without the secrets in its URLs, headers and assignments."""
        if len(text) > TEXT_MAX:
            text = f"{text[:TEXT_MAX]}… cut"
        return self._inside.sub(lambda match: f"{match[match.lastgroup or 0]}{REDACTED}", text)


def _inside(words: Sequence[str]) -> str:
    """A pattern of secrets within a text; its group is what stays. Every repeat is bounded: a text may be hostile."""
    word = "|".join(map(re.escape, words)) or r"(?!)"
    assigned = r"[\w-]{0,64}+\\{0,3}[\"']?\s{0,8}[=:]\s{0,8}"
    quoted = r"\"(?:[^\"\\]|\\.){0,2000}+\"?|'(?:[^'\\]|\\.){0,2000}+'?"
    nested = r"\\{1,3}\"(?:(?!\\{1,3}\").){0,2000}+(?:\\{1,3}\")?"
    bare = r"[^\s&,;\"'}\])]{1,2000}+"
    fresh = r"(?!\[REDACTED\])"
    return "|".join(
        [
            # scheme://user:secret@host, up to the last @, whatever the secret holds; https://token@host
            r"(?P<url>://[^\s:/@\"']{0,200}:)[^\s\"'<>]{1,500}(?=@)",
            r"(?P<http>https?://)[^\s:/@\"']{1,500}+(?=@)",
            # Authorization: Scheme secret
            rf"(?P<auth>authorization{assigned}\\{{0,3}}[\"']?){fresh}(?:[a-z][\w-]{{0,32}}+\s{{1,8}})?{bare}",
            # bearer secret, wherever it stands
            r"(?P<bearer>\b(?:bearer|basic)\s{1,8})[A-Za-z0-9._~+/=-]{6,2000}+",
            # --password secret, and the same in a printed list
            rf"(?P<flag>--[a-z-]{{0,40}}?(?:{word})[\w-]{{0,40}}+[\"']?,?\s{{1,4}}[\"']?){fresh}(?!-){bare}",
            # token=secret, "api_key": "secret", password: secret
            # (but not the message of a KeyError)
            rf"(?P<pair>(?:{word})(?!\w{{0,20}}error\b){assigned}){fresh}(?:{nested}|{quoted}|{bare})",
        ]
    )
