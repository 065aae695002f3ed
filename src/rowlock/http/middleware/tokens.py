"""A cache of the tokens in requests: looked up by digest, and trusted for `http_token_seconds` (default: 2)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from rowlock.control import tokens
from rowlock.errors import StoreError
from rowlock.storage.access import TokenId, TokenRecord
from rowlock.storage.contract import Store
from rowlock.tokens import LENGTH_MAX, PREFIX, digest

_KNOWN_MAX = 10_000
_TOUCH_SECONDS = 30.0


class Tokens:
    """The valid tokens that this process has seen recently.

    Lookups are by digest, so their timing reveals nothing about a token.
    """

    def __init__(self, trust_seconds: float) -> None:
        self._trust_seconds = trust_seconds
        self._known: OrderedDict[str, tuple[TokenRecord, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[TokenRecord | None]] = {}
        self._used: set[TokenId] = set()
        self._touched_at = -_TOUCH_SECONDS
        self._touching: asyncio.Task[None] | None = None

    def trusted(self, token: str) -> TokenRecord | None:
        """Return the record of a token that was looked up recently, or None."""
        found = self._known.get(digest(token))
        if found is None or time.monotonic() > found[1]:
            return None
        return found[0]

    def remembered(self, token: str) -> bool:
        """Return whether the token was valid at its last lookup, however long ago."""
        return digest(token) in self._known

    async def look_up(self, store: Store, token: str) -> TokenRecord | None:
        """Return a valid token's record from the store, or None; concurrent lookups of a token share one query."""
        if not token.startswith(PREFIX) or len(token) > LENGTH_MAX:
            return None
        key = digest(token)
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(store, key))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _ask(self, store: Store, key: str) -> TokenRecord | None:
        record = await tokens.find(store, key)
        if record is None:
            self._known.pop(key, None)
            return None
        self._known[key] = record, time.monotonic() + self._trust_seconds
        self._known.move_to_end(key)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return record

    def used(self, store: Store, token_id: TokenId) -> None:
        """Note that a token was used; the store is updated every 30 s at most."""
        self._used.add(token_id)
        now = time.monotonic()
        if now - self._touched_at >= _TOUCH_SECONDS and (self._touching is None or self._touching.done()):
            self._touched_at = now
            self._touching = asyncio.create_task(self.touch(store))

    async def touch(self, store: Store) -> None:
        """Record in the store which tokens were used."""
        used, self._used = self._used, set()
        try:
            if used:
                await tokens.touch(store, sorted(used))
        except StoreError:
            self._used |= used  # retried at the next update
