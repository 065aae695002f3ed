"""Tokens and idempotency keys of the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pymongo.errors import DuplicateKeyError

from rowlock.errors import StoreUnavailable
from rowlock.ids import is_uuid
from rowlock.storage.access import NewToken, RequestAnswer, RequestState, Role, TokenId, TokenRecord
from rowlock.storage.mongo.connection import Document, Scope
from rowlock.storage.mongo.dates import MILLISECOND, after, floor
from rowlock.storage.mongo.documents import storable
from rowlock.storage.mongo.failures import DAY_SECONDS, remove_first
from rowlock.storage.mongo.indexes import Index
from rowlock.storage.mongo.work import Worked
from rowlock.storage.records import JobId

TOKENS = "rowlock_tokens"
REQUESTS = "rowlock_requests"
TRIES_AT_MOST = 100
"""How often beginning a request is tried if others are quicker."""

INDEXES: tuple[Index, ...] = (
    Index(TOKENS, "digest", (("digest", 1),), unique=True),
    Index(TOKENS, "ending", (("endsAt", 1),), where={"endsAt": {"$exists": True}}),
    Index(REQUESTS, "expiring", (("expiresAt", 1),), expire_seconds=0),
)


class Access(Worked):
    """Stores tokens by their digest; a request is one document, taken by a write that names the previous try."""

    # -- tokens ------------------------------------------------------------------------------------

    async def add_token(self, token: NewToken) -> TokenRecord:
        async def add(scope: Scope) -> TokenRecord:
            now = await scope.now()
            document: Document = {
                "_id": token.id.lower(),
                "digest": token.digest,
                "name": storable(token.name),
                "role": token.role.value,
                "createdAt": now,
            }
            if token.company_id is not None:
                document["companyId"] = token.company_id
            if token.expires_in_seconds is not None:
                document["expiresAt"] = document["endsAt"] = after(now, token.expires_in_seconds)
            await scope[TOKENS].insert_one(document)
            return _token_record(document)

        return await self._plain(add)

    async def token(self, digest: str) -> TokenRecord | None:
        async def find(scope: Scope) -> TokenRecord | None:
            found = await scope[TOKENS].find_one({"digest": digest})
            if found is None or "revokedAt" in found:
                return None
            live = "expiresAt" not in found or found["expiresAt"] > await scope.now()
            return _token_record(found) if live else None

        return await self._plain(find)

    async def tokens(self) -> list[TokenRecord]:
        found = await self._plain(lambda scope: scope[TOKENS].find().sort([("createdAt", 1), ("_id", 1)]).to_list())
        return [_token_record(one) for one in found]

    async def revoke_token(self, token_id: TokenId) -> bool:
        if not is_uuid(token_id):
            return False

        async def revoke(scope: Scope) -> bool:
            now = await scope.now()
            first: list[Document] = [
                {"$set": {"revokedAt": {"$ifNull": ["$revokedAt", now]}}},
                {"$set": {"endsAt": {"$min": ["$endsAt", "$revokedAt"]}}},
            ]
            return (await scope[TOKENS].update_one({"_id": token_id.lower()}, first)).matched_count > 0

        return await self._plain(revoke)

    async def touch_tokens(self, token_ids: Sequence[TokenId]) -> None:
        if not (ids := [token_id.lower() for token_id in token_ids if is_uuid(token_id)]):
            return

        async def touch(scope: Scope) -> None:
            # No transaction: the tokens are independent of each other.
            await scope[TOKENS].update_many({"_id": {"$in": ids}}, {"$set": {"lastUsedAt": await scope.now()}})

        await self._plain(touch)

    # -- requests ----------------------------------------------------------------------------------

    async def begin_request(
        self, key: str, fingerprint: str, job_id: JobId, *, keep_seconds: float, stale_seconds: float
    ) -> RequestAnswer:
        async def begin(scope: Scope) -> RequestAnswer:
            for _ in range(TRIES_AT_MOST):
                found = await scope[REQUESTS].find_one({"_id": key})
                now = await scope.now()
                live = found is not None and found["expiresAt"] > now
                if found is not None and live and (known := _known(found, fingerprint, after(now, -stale_seconds))):
                    return known
                begun_at = now if found is None else max(now, found["begunAt"] + MILLISECOND)
                taking: Document = {
                    "_id": key,
                    "fingerprint": fingerprint,
                    "jobId": found["jobId"] if found is not None and live else job_id,
                    "begunAt": begun_at,
                    "expiresAt": after(now, keep_seconds),
                }
                if await _taken(scope, found, taking):
                    state = RequestState.BROKEN_OFF if live else RequestState.NEW
                    return RequestAnswer(state, taking["jobId"], begun_at)
            raise StoreUnavailable(f"{self.url}: others were quicker {TRIES_AT_MOST} times to begin a request")

        return await self._plain(begin)

    async def end_request(self, key: str, begun_at: datetime, status: int, body: str) -> None:
        await self._change_request(key, begun_at, {"status": status, "body": body})

    async def release_request(self, key: str, begun_at: datetime) -> None:
        await self._change_request(key, begun_at, {"released": True})

    async def _change_request(self, key: str, begun_at: datetime, fields: Document) -> None:
        """Change the request if this try still has it."""
        ours = {"_id": key, "begunAt": floor(begun_at), "status": None}
        await self._plain(lambda scope: scope[REQUESTS].update_one(ours, {"$set": fields}))

    async def prune_access(self, days: float, limit: int) -> int:
        async def prune(scope: Scope) -> int:
            now = await scope.now()
            removed = await remove_first(scope, REQUESTS, {"expiresAt": {"$lte": now}}, "expiresAt", limit)
            ended = {"endsAt": {"$lt": after(now, -days * DAY_SECONDS)}}
            return removed + await remove_first(scope, TOKENS, ended, "endsAt", limit - removed)

        return await self._plain(prune)


def _token_record(document: Document) -> TokenRecord:
    return TokenRecord(
        id=document["_id"],
        name=document["name"],
        role=Role(document["role"]),
        company_id=document.get("companyId"),
        created_at=document["createdAt"],
        expires_at=document.get("expiresAt"),
        last_used_at=document.get("lastUsedAt"),
        revoked_at=document.get("revokedAt"),
    )


def _known(found: Document, fingerprint: str, stale: datetime) -> RequestAnswer | None:
    """Return the answer to a repeated request; None if it was broken off, so that the caller may take it."""
    said = (found["jobId"], found["begunAt"])
    if found["fingerprint"] != fingerprint:
        return RequestAnswer(RequestState.OTHER, *said)
    if "status" in found:
        return RequestAnswer(RequestState.DONE, *said, found["status"], found["body"])
    if not found.get("released") and found["begunAt"] >= stale:
        return RequestAnswer(RequestState.RUNNING, *said)
    return None


async def _taken(scope: Scope, found: Document | None, taking: Document) -> bool:
    """Take a request that is still as it was read; returns False if another was quicker."""
    if found is None:
        try:
            await scope[REQUESTS].insert_one(taking)
        except DuplicateKeyError:
            return False
        return True
    as_found = {"_id": found["_id"], "begunAt": found["begunAt"], "status": found.get("status")}
    return (await scope[REQUESTS].replace_one(as_found, taking)).matched_count > 0
