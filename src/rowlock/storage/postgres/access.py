"""Tokens, idempotent requests and changes in the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rowlock.clock import Clock
from rowlock.ids import is_uuid
from rowlock.storage.access import (
    Changes,
    JobChange,
    NewToken,
    RequestAnswer,
    RequestState,
    Role,
    TokenId,
    TokenRecord,
)
from rowlock.storage.postgres.connection import Connections
from rowlock.storage.postgres.rows import clean
from rowlock.storage.records import JobId, Status


class Access:
    """The verbs for tokens, idempotent requests and changes."""

    _connections: Connections
    clock: Clock

    @property
    def _now(self) -> datetime | None:
        return self.clock.now()

    # -- tokens ------------------------------------------------------------------------------------

    async def add_token(self, token: NewToken) -> TokenRecord:
        who = (token.id, token.digest, clean(token.name), token.role, token.company_id)
        (row,) = await self._connections.fetch("add_token", *who, token.expires_in_seconds, self._now)
        return _token(row)

    async def token(self, digest: str) -> TokenRecord | None:
        rows = await self._connections.fetch("token", digest, self._now)
        return _token(rows[0]) if rows else None

    async def tokens(self) -> list[TokenRecord]:
        return [_token(row) for row in await self._connections.fetch("tokens")]

    async def revoke_token(self, token_id: TokenId) -> bool:
        return is_uuid(token_id) and bool(await self._connections.fetch("revoke_token", token_id, self._now))

    async def touch_tokens(self, token_ids: Sequence[TokenId]) -> None:
        if ids := [token_id for token_id in token_ids if is_uuid(token_id)]:
            await self._connections.fetch("touch_tokens", ids, self._now)

    # -- requests ----------------------------------------------------------------------------------

    async def begin_request(
        self, key: str, fingerprint: str, job_id: JobId, *, keep_seconds: float, stale_seconds: float
    ) -> RequestAnswer:
        asked = (key, fingerprint, job_id, keep_seconds, stale_seconds, self._now)
        ((state, *known),) = await self._connections.fetch("begin_request", *asked)
        return RequestAnswer(RequestState(state), *known)

    async def end_request(self, key: str, begun_at: datetime, status: int, body: str) -> None:
        await self._connections.fetch("end_request", key, begun_at, status, body)

    async def release_request(self, key: str, begun_at: datetime) -> None:
        await self._connections.fetch("release_request", key, begun_at)

    async def prune_access(self, days: float, limit: int) -> int:
        return int(await self._connections.value("prune_access", days, limit, self._now))

    # -- changes -----------------------------------------------------------------------------------

    async def changes(self, since: datetime, limit: int) -> Changes:
        rows = await self._connections.fetch("changes", since, limit + 1, self._now)
        jobs = [_change(row) for row in rows if row["id"] is not None]
        return Changes(jobs[:limit], len(jobs) > limit, rows[0]["looked_at"])


def _token(row: Any) -> TokenRecord:
    token_id, name, role, *rest = row
    return TokenRecord(token_id, name, Role(role), *rest)


def _change(row: Any) -> JobChange:
    _, job_id, type_name, queue, status, *rest = row
    return JobChange(job_id, type_name, queue, Status(status), *rest)
