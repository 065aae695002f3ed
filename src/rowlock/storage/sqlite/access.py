"""SQLite store: API tokens, idempotency keys of HTTP requests, and recent job changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import apsw

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
from rowlock.storage.records import JobId, Status
from rowlock.storage.sqlite.errors import BUSY_SECONDS
from rowlock.storage.sqlite.rows import Row, duration_micros, micros, moment, moment_or_none, storable
from rowlock.storage.sqlite.sql import run, run_each, value
from rowlock.storage.sqlite.work import Worked

_DAY_SECONDS = 24 * 3600


class Access(Worked):
    """Store methods for API tokens, idempotency keys and job changes."""

    # -- tokens ------------------------------------------------------------------------------------

    async def add_token(self, token: NewToken) -> TokenRecord:
        return await self._write(lambda connection, now: _add_token(connection, now, token))

    async def token(self, digest: str) -> TokenRecord | None:
        rows = await self._read(lambda connection, now: run(connection, "token", {"digest": digest, "now": now}))
        return _token_record(rows[0]) if rows else None

    async def tokens(self) -> list[TokenRecord]:
        return [_token_record(row) for row in await self._read(lambda connection, now: run(connection, "tokens"))]

    async def revoke_token(self, token_id: TokenId) -> bool:
        return is_uuid(token_id) and await self._write(
            lambda connection, now: bool(run(connection, "revoke_token", {"id": token_id.lower(), "now": now}))
        )

    async def touch_tokens(self, token_ids: Sequence[TokenId]) -> None:
        if ids := [token_id.lower() for token_id in token_ids if is_uuid(token_id)]:
            await self._write(
                lambda connection, now: run_each(connection, "touch_token", [(now, token_id) for token_id in ids])
            )

    # -- requests ----------------------------------------------------------------------------------

    async def begin_request(
        self, key: str, fingerprint: str, job_id: JobId, *, keep_seconds: float, stale_seconds: float
    ) -> RequestAnswer:
        asked = {"key": key, "fingerprint": fingerprint, "job_id": job_id}
        kept, stale = duration_micros(keep_seconds), duration_micros(stale_seconds)
        return await self._write(lambda connection, now: _begin_request(connection, now, asked, kept, stale))

    async def end_request(self, key: str, begun_at: datetime, status: int, body: str) -> None:
        ending = {"key": key, "begun_at": micros(begun_at), "status": status, "body": body}
        await self._write(lambda connection, now: run(connection, "end_request", ending))

    async def release_request(self, key: str, begun_at: datetime) -> None:
        releasing = {"key": key, "begun_at": micros(begun_at)}
        await self._write(lambda connection, now: run(connection, "release_request", releasing))

    async def prune_access(self, days: float, limit: int) -> int:
        age = duration_micros(days * _DAY_SECONDS)
        return await self._write(lambda connection, now: _prune(connection, now, now - age, limit))

    # -- changes -----------------------------------------------------------------------------------

    async def changes(self, since: datetime, limit: int) -> Changes:
        return await self._read(lambda connection, now: _changes(connection, now, micros(since), limit))


def _add_token(connection: apsw.Connection, now: int, token: NewToken) -> TokenRecord:
    seconds = token.expires_in_seconds
    given = asdict(token) | {
        "id": token.id.lower(),
        "name": storable(token.name),
        "role": token.role.value,
        "now": now,
        "expires_at": None if seconds is None else now + duration_micros(seconds),
    }
    (row,) = run(connection, "add_token", given)
    return _token_record(row)


def _begin_request(
    connection: apsw.Connection, now: int, asked: dict[str, Any], kept: int, stale: int
) -> RequestAnswer:
    state, job_id = RequestState.NEW, asked["job_id"]
    if found := run(connection, "request", {"key": asked["key"], "now": now}):
        fingerprint, job_id, begun_at, released, status, body = found[0]
        if fingerprint != asked["fingerprint"]:
            return RequestAnswer(RequestState.OTHER, job_id, moment(begun_at))
        if status is not None:
            return RequestAnswer(RequestState.DONE, job_id, moment(begun_at), status, body)
        if not released and begun_at >= now - stale:
            return RequestAnswer(RequestState.RUNNING, job_id, moment(begun_at))
        state = RequestState.BROKEN_OFF
    taking = {**asked, "job_id": job_id, "now": now, "expires_at": now + kept}
    ((begun_at,),) = run(connection, "begin_request", taking)
    return RequestAnswer(state, job_id, moment(begun_at))


def _prune(connection: apsw.Connection, now: int, before: int, limit: int) -> int:
    removed = len(run(connection, "prune_requests", {"now": now, "limit": limit}))
    return removed + len(run(connection, "prune_tokens", {"before": before, "limit": limit - removed}))


def _changes(connection: apsw.Connection, now: int, since: int, limit: int) -> Changes:
    asked = {"since": since, "first": _first_since(connection, since), "limit": limit + 1}
    jobs = [_change(row) for row in run(connection, "changes", asked)]
    return Changes(jobs[:limit], len(jobs) > limit, moment(now))


def _first_since(connection: apsw.Connection, since: int) -> int:
    """Return a seq such that every job created at or after `since` has this seq or a higher one."""
    # Seqs follow the order of writes, and a job may be written up to BUSY_SECONDS after its created_at.
    written = since - duration_micros(BUSY_SECONDS)
    ((first, last),) = run(connection, "seq_ends")
    seqs = range(first or 0, (last or 0) + 1)
    return seqs.start + bisect_left(seqs, written, key=lambda seq: value(connection, "created_from", {"seq": seq}) or 0)


def _token_record(row: Row) -> TokenRecord:
    token_id, name, role, company_id, created_at, *times = row
    return TokenRecord(token_id, name, Role(role), company_id, moment(created_at), *map(moment_or_none, times))


def _change(row: Row) -> JobChange:
    job_id, type_name, queue, status, *rest, changed_at = row
    rest.append(moment(changed_at))
    return JobChange(job_id, type_name, queue, Status(status), *rest)
