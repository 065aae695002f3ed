"""Tokens of the HTTP API: random, shown once, stored hashed."""

from __future__ import annotations

import hashlib
import secrets

from rowlock.ids import uuid7
from rowlock.storage.access import NewToken, Role

PREFIX = "rlk_"
LENGTH_MAX = 200
_BYTES = 32


def new_token(
    name: str, role: Role, company_id: str | None = None, expires_in_seconds: float | None = None
) -> tuple[str, NewToken]:
    """Return a new token and the record to store."""
    text = PREFIX + secrets.token_urlsafe(_BYTES)
    return text, NewToken(uuid7(), digest(text), name, role, company_id, expires_in_seconds)


def digest(token: str) -> str:
    """Return the hash that is stored instead of a token."""
    # 256 random bits cannot be guessed from their hash: a slow hash would only slow down every request.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
