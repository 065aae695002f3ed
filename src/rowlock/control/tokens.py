"""Tokens of the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from rowlock.control.decide import Decision, days_before, decide, later
from rowlock.errors import ValueRefused
from rowlock.ids import is_uuid
from rowlock.storage.access import TOKENS, NewToken, StoredToken, TokenId, TokenRecord
from rowlock.storage.contract import Store
from rowlock.storage.kinds import Records, Seen

_TOUCHES_AT_ONCE = 32  # the stores commit such writes together

# -- rules -------------------------------------------------------------------------------------------


def ends_at(token: StoredToken) -> datetime | None:
    """Returns when the token stops being valid, or stopped; None: never."""
    return min((end for end in (token.revoked_at, token.expires_at) if end is not None), default=None)


def is_valid(token: StoredToken | TokenRecord, now: datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def revoked(token: StoredToken | None, now: datetime) -> Decision[StoredToken, bool]:
    """A token is revoked once: the time of the first call is kept."""
    if token is None or token.revoked_at is not None:
        return Decision(token, token is not None)
    return Decision(replace(token, revoked_at=now), True)


def touched(token: StoredToken | None, now: datetime) -> Decision[StoredToken, None]:
    if token is None or (token.last_used_at is not None and token.last_used_at >= now):
        return Decision(token, None)
    return Decision(replace(token, last_used_at=now), None)


# -- verbs -------------------------------------------------------------------------------------------


async def add(records: Records, token: NewToken) -> TokenRecord:
    """Records a token by its digest; it expires by the store's clock. Raises ValueRefused for a second one."""
    token_id, seconds = token.id.lower(), token.expires_in_seconds
    seen: Seen[StoredToken] = await records.read(TOKENS, token_id)
    expires_at = None if seconds is None else later(seen.now, seconds)
    # A name may hold what no database can store.
    name = token.name.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()
    made = StoredToken(
        *(token_id, token.digest, name, token.role, token.company_id, seen.now, expires_at, None, None),
    )
    if not await records.insert(TOKENS, made):
        raise ValueRefused(f"a token with the id {token_id}, or with the same digest, exists already")
    return made.shown()


async def find(records: Records, digest: str) -> TokenRecord | None:
    """Returns the token with this digest; None if it is unknown, revoked or expired."""
    seen: Seen[StoredToken] = await records.read(TOKENS, digest, by="digest")
    return seen.record.shown() if seen.record is not None and is_valid(seen.record, seen.now) else None


async def listed(records: Records) -> list[TokenRecord]:
    """Returns every token, including revoked and expired ones, oldest first."""
    found = [token.shown() for token in await records.scan(TOKENS)]
    return sorted(found, key=lambda token: (token.created_at, token.id))


async def revoke(records: Records, token_id: TokenId) -> bool:
    """Revokes a token; the time of the first call is kept. Returns False for an unknown or malformed id."""
    return is_uuid(token_id) and await decide(records, TOKENS, (token_id.lower(),), revoked)


async def touch(records: Records, token_ids: Iterable[TokenId]) -> None:
    """Sets the last use of these tokens to now."""
    known = [token_id.lower() for token_id in token_ids if is_uuid(token_id)]
    for start in range(0, len(known), _TOUCHES_AT_ONCE):
        part = known[start : start + _TOUCHES_AT_ONCE]
        await asyncio.gather(*(decide(records, TOKENS, (token_id,), touched) for token_id in part))


async def prune(store: Store, days: float, limit: int) -> int:
    """Removes up to `limit` tokens that ended more than `days` ago; returns how many."""
    before, removed = days_before(await store.now(), days), 0
    for token in await store.scan(TOKENS):
        if removed >= limit:
            break
        end = ends_at(token)
        removed += end is not None and end < before and await store.delete(TOKENS, token)
    return removed
