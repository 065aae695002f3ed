"""Redaction: replace secrets in payloads, logs, errors and output. The one place that decides what a secret is.

Texts may be hostile, so redaction takes linear time: every pattern either fails within a few characters or consumes
what it has read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

import orjson

from rowlock.observe.internals import without_inner

REDACTED = "[REDACTED]"
DEFAULT_WORDS = ("password", "token", "secret", "key", "authorization")
TEXT_MAX = 200_000
_DEPTH_MAX = 50
_URL_SECRET_MAX = 4_000
_KNOWN_KEYS_MAX = 10_000
_KNOWN_KEY_CHARS_MAX = 100
_LONG_WORD_CHARS = 8

# api_key, apiKey, API-Key: a word begins at an upper-case letter, and digits are a word of their own.
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
# Next to one of these words a plural is a number, not a secret: tokens_used, maxTokens.
_COUNTED = frozenset(
    (
        *("allowed", "average", "avg", "budget", "cost", "count", "counts", "estimated", "left", "length", "limit"),
        *("max", "maximum", "min", "minimum", "n", "num", "number", "per", "price", "quota", "rate", "remaining"),
        *("saved", "size", "spent", "sum", "total", "usage", "used"),
    )
)
# Other words end with this one: monkey, turnkey. It names a secret only next to the words below.
_AMBIGUOUS = "key"
# Words that people join to a secret's name without a capital letter: apikey, secretkey, tokenvalue.
_GLUED = (
    "access|account|admin|api|app|auth|aws|bearer|bot|client|consumer|csrf|customer|data|db|deploy|device|encryption"
    "|file|gpg|hash|hmac|host|id|jwt|license|login|master|my|new|oauth|old|pair|pem|pgp|private|proxy|public|refresh|root"
    "|rsa|secret|server|service|session|shared|signing|site|ssh|ssl|storage|store|string|text|tls|user|value|web"
    "|webhook|x|xsrf"
)
_SERVICES = (  # services whose keys are secrets: stripekey
    "anthropic|azure|cipher|cloudflare|crypto|datadog|decryption|dkim|firebase|gcp|github|gitlab|google|hubspot|kms"
    "|mailgun|openai|sendgrid|sentry|slack|stripe|twilio"
)

_USER = re.compile(r"[^\s:/@\"']*+")
_UNBROKEN = re.compile(r"[^\s\"'<>]*+")
_FRESH = r"(?!\[REDACTED\])"
_BARE = r"[^\s&,;\"'}\])]++"
# A quote that is never closed ends after 2,000 characters: it may be an apostrophe.
_NESTED = r"\\{1,3}\"(?:[^\\]|(?!\\{1,3}\")\\)*+\\{1,3}\"|\\{1,3}\"(?:(?!\\{1,3}\").){0,2000}+"  # \"secret\"
_QUOTED = (
    r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'"  # "secret", 'secret'
    r"|\"(?:[^\"\\]|\\.){0,2000}+|'(?:[^'\\]|\\.){0,2000}+"
)
_VALUE = re.compile(rf"{_FRESH}(?:{_NESTED}|{_QUOTED}|{_BARE})", re.DOTALL)
_LISTED_VALUE = re.compile(rf"{_FRESH}{_BARE}")
# Authorization: Scheme secret
_AUTHORIZATION = re.compile(
    rf"(?P<kept>\\{{0,3}}[\"']?){_FRESH}(?:[a-z][\w-]{{0,32}}+\s{{1,8}})?{_BARE}", re.IGNORECASE
)


class Redactor:
    """Replaces values under keys that contain one of the words, at any depth, and secrets inside strings.

    A key contains a word in snake, camel or kebab case, or at the end of another word: `token` is in access_token,
    accessToken, X-Access-Token and githubtoken. `key` is in apikey and stripekey, but not in keyboard and monkey.
    Plurals count, except beside a word for a number, such as in tokens_used.
    """

    for_company = False

    def __init__(self, words: Sequence[str] = DEFAULT_WORDS) -> None:
        given = [word.strip().lower() for word in words if word.strip()]
        self._words = tuple(filter(None, (re.sub(r"[\W_]+", "", word) for word in given)))
        self._long_words = tuple(word for word in self._words if len(word) >= _LONG_WORD_CHARS)
        plain = sorted(set(self._words) - {_AMBIGUOUS}, key=len, reverse=True)
        either = "|".join(map(re.escape, plain)) or r"(?!)"
        self._ending = re.compile(rf"(?:{either})(?P<plural>s)?(?:{_GLUED}|{_AMBIGUOUS}s?|base|proof){{0,3}}\Z")
        self._glued = re.compile(
            rf"(?:{_GLUED}|{_SERVICES}){{0,3}}{_AMBIGUOUS}(?P<plural>s)?(?:{_GLUED}){{0,3}}"
            if _AMBIGUOUS in self._words
            else r"(?!)"
        )
        self._known = lru_cache(_KNOWN_KEYS_MAX)(self._judge)
        signs = sorted({sign for word in given for sign in word if not re.match(r"[\w\s=:\"'\\-]", sign)})
        self._opening = _opening(r"[\w" + "".join(map(re.escape, signs)) + r"-]")

    def is_secret(self, key: str) -> bool:
        """Return whether a value under this key is a secret."""
        return self._known(key) if len(key) <= _KNOWN_KEY_CHARS_MAX else self._judge(key)

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a copy of JSON-like data without its secrets."""
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
        """Redact JSON text; the result is JSON."""
        return orjson.dumps(self.value(orjson.loads(text))).decode()

    def text(self, text: str) -> str:
        """Redact secrets in the URLs, headers and assignments of a string; cuts it at TEXT_MAX characters."""
        if len(text) > TEXT_MAX:
            text = f"{text[:TEXT_MAX]}… cut"
        pieces: list[str] = []
        done = 0
        for start, end in self._secrets(text):
            pieces += (text[done:start], REDACTED)
            done = end
        return "".join([*pieces, text[done:]]) if pieces else text

    def message(self, text: str) -> str:
        """Redact an error or progress message; for a company also details that are for operators only."""
        text = self.text(text)
        return without_inner(text) if self.for_company else text

    def stack(self, text: str | None) -> str | None:
        """Redact a stack trace; returns None for a company, as stack traces are for operators only."""
        return None if text is None or self.for_company else self.text(text)

    def company(self) -> Redactor:
        """Return this redactor, as it is for users of one company."""
        made = copy(self)
        made.for_company = True
        return made

    def _judge(self, key: str) -> bool:
        parts = [part.lower() for part in _PARTS.findall(key)]
        plurals = _COUNTED.isdisjoint(parts)
        if self._contained(parts, plurals):
            return True
        for part in parts:
            if any(word in part for word in self._long_words):
                return True
            found = self._ending.search(part) or self._glued.fullmatch(part)
            if found and (not found["plural"] or (plurals and part[: found.start()] not in _COUNTED)):
                return True
        return False

    def _contained(self, parts: list[str], plurals: bool) -> bool:
        """Return whether whole parts of a key make up one of the words, or its plural."""
        joined, edges, at = "".join(parts), {0}, 0
        for part in parts:
            edges.add(at := at + len(part))
        for word in self._words:
            start = joined.find(word)
            while start >= 0:
                end = start + len(word)
                if start in edges and (end in edges or (plurals and joined[end : end + 1] == "s" and end + 1 in edges)):
                    return True
                start = joined.find(word, start + 1)
        return False

    def _secrets(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each secret in a text."""
        at, urls = 0, _Urls(text)
        while opening := self._opening.search(text, at):
            at = opening.end()
            kind = opening.lastgroup
            span: tuple[int, int] | None = None
            if kind == "url":
                span = urls.secret(at)
            elif kind == "bearer":
                span = opening.end("scheme"), at
            else:
                name = opening["name" if kind == "assigned" else "flag"]
                before = text[opening.start() - 1 : opening.start()]
                if not self._names_secret(name, before):
                    at = opening.start() + len(name)
                    continue
                if kind == "listed":
                    span = _span(_LISTED_VALUE.match(text, at))
                elif name.lower().endswith("authorization"):
                    found = _AUTHORIZATION.match(text, at)
                    span = (found.end("kept"), found.end()) if found else None
                else:
                    span = _span(_VALUE.match(text, at))
            if span:
                yield span
                at = span[1]

    def _names_secret(self, name: str, before: str) -> bool:
        if name.lower().endswith(("error", "errors")):  # the message of a KeyError
            return False
        if self.is_secret(name) or name.lower().endswith("authorization"):
            return True
        # In \ntoken=x and %5Btoken=x, the escaped character is not part of the name.
        return before in ("\\", "%") and self.is_secret(name[1 if before == "\\" else 2 :])


class _Urls:
    """The secrets in the URLs of a text: scheme://user:secret@host, https://token@host."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = -1
        self._last_at = -1

    def secret(self, start: int) -> tuple[int, int] | None:
        """Return the span of the secret in the URL whose :// ends at `start`, up to the last @. Call left to right."""
        text = self._text
        user_end = _end(_USER, text, start)
        if text.startswith("@", user_end):
            scheme = text[max(0, start - 8) : start].lower()
            return (start, user_end) if user_end > start and scheme.endswith(("http://", "https://")) else None
        if not text.startswith(":", user_end):
            return None
        first = user_end + 1
        if first >= self._end:
            self._end = max(_end(_UNBROKEN, text, first), first + 1)
            self._last_at = text.rfind("@", first, self._end)
        if self._last_at <= first:
            return None
        last = text.rfind("@", first + 1, min(self._end, first + _URL_SECRET_MAX))
        return (first, last) if last > 0 else None


def _opening(sign: str) -> re.Pattern[str]:
    """Return the pattern of the text before a secret; `sign` matches a character of a key, each key is tried once."""
    return re.compile(
        r"(?P<url>://)"
        # bearer secret, anywhere
        r"|(?P<bearer>(?P<scheme>\b(?:bearer|basic)\s{1,8})[A-Za-z0-9._~+/=-]{6,}+)"
        # token=secret, "api_key": "secret", password: secret
        rf"|(?<!{sign})(?P<name>{sign}++)(?P<assigned>\\{{0,3}}[\"']?\s{{0,8}}[=:]\s{{0,8}})"
        # --password secret, and the same in a printed list
        rf"|(?<!{sign})(?P<flag>--{sign}++)(?P<listed>[\"']?,?\s{{1,4}}[\"']?)(?!-)",
        re.IGNORECASE,
    )


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start


def _span(found: re.Match[str] | None) -> tuple[int, int] | None:
    return found.span() if found else None
