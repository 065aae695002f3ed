"""Tokens as requests bring them: looked up by digest; a known one is trusted for a moment."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from rowlock.errors import StoreError
from rowlock.storage.access import TokenId, TokenRecord
from rowlock.storage.base import Store
from rowlock.tokens import LENGTH_MAX, PREFIX, digest

_KNOWN_MAX = 10_000
_TOUCH_SECONDS = 30.0


class Tokens:
    """The tokens that this process has seen lately.

    A lookup is by digest, so nothing about a token can be learned from how long it takes.
    """

    def __init__(self, trust_seconds: float) -> None:
        self._trust_seconds = trust_seconds
        self._known: OrderedDict[str, tuple[TokenRecord, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[TokenRecord | None]] = {}
        self._used: set[TokenId] = set()
        self._touched_at = -_TOUCH_SECONDS
        self._touching: asyncio.Task[None] | None = None

    def trusted(self, token: str) -> TokenRecord | None:
        """The record of a token that was good a moment ago."""
        found = self._known.get(digest(token))
        if found is None or time.monotonic() > found[1]:
            return None
        return found[0]

    def remembered(self, token: str) -> bool:
        """Whether it was good when it was last looked up, however long ago."""
        return digest(token) in self._known

    async def look_up(self, store: Store, token: str) -> TokenRecord | None:
        """The record of a good token, from the store; those who ask for the same one at once share the question."""
        if not token.startswith(PREFIX) or len(token) > LENGTH_MAX:
            return None
        key = digest(token)
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(store, key))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(asking)

    async def _ask(self, store: Store, key: str) -> TokenRecord | None:
        record = await store.token(key)
        if record is None:
            self._known.pop(key, None)
            return None
        self._known[key] = record, time.monotonic() + self._trust_seconds
        self._known.move_to_end(key)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return record

    def used(self, store: Store, token_id: TokenId) -> None:
        """Note a use; the store is told now and then, not at every request."""
        self._used.add(token_id)
        now = time.monotonic()
        if now - self._touched_at >= _TOUCH_SECONDS and (self._touching is None or self._touching.done()):
            self._touched_at = now
            self._touching = asyncio.create_task(self.touch(store))

    async def touch(self, store: Store) -> None:
        """Tell the store which tokens were used."""
        used, self._used = self._used, set()
        try:
            if used:
                await store.touch_tokens(sorted(used))
        except StoreError:
            self._used |= used  # with the next
