"""The event stream: one poll of the store serves all subscribers.

store ──changes since the last poll──▶ EventStream ──▶ one group per filter ──▶ subscriber (256 events, then a gap)
      of any process; every 500 ms by                                       └▶ subscriber …
      default, while anyone subscribes

An event has the current state of a job; states between two polls are skipped. So no final state is lost, nothing is
stored for disconnected clients, and a client that reconnects gets what the store says has changed since.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rowlock.app import Rowlock
from rowlock.control import tokens
from rowlock.errors import StoreError
from rowlock.http.events.subscriber import Listeners, Subscriber, Wants, batches
from rowlock.http.problem import Problem
from rowlock.management.schemas.base import Schema
from rowlock.management.schemas.fleet import QueueSchema
from rowlock.management.schemas.imports import ImportChangeSchema
from rowlock.management.schemas.jobs import JobChangeSchema
from rowlock.observe import logs
from rowlock.observe.redaction import Redactor
from rowlock.storage.access import Changes, JobChange, TokenId
from rowlock.storage.imports import ImportId, ImportRecord
from rowlock.storage.records import JobId

_LOOK_BACK = timedelta(seconds=2)  # a change may be committed this long after its timestamp
_LOOK_MAX = 2_000
_LOOK_SHARE = 10  # the pause after a poll is at least this multiple of the poll's duration
_PAST_MAX = timedelta(hours=1)
_PAST_SHARED = timedelta(seconds=5)  # clients that were cut off within this span share one query
_PAST_SECONDS = 1.0
_QUEUES_SECONDS = 2.0
_TOKENS_SECONDS = 2.0
_GAP_SECONDS = 5.0  # at least, between two gaps
_CAUGHT_UP_MAX = 250  # past events sent after a reconnect; more become a gap
_AWAY_SECONDS = 2.0

_ID = re.compile(r"[0-9]{1,16}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EventStream:
    """Polls the store while there are subscribers, and gives each the events that match its filter."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self._for_company = app.redact.company()
        self._seconds = app.settings.http_event_ms / 1_000
        self._listeners = Listeners()
        self._looking: asyncio.Task[None] | None = None
        self._since: datetime | None = None
        self._sent: dict[str, tuple[Any, ...]] = {}
        self._sent_until: datetime | None = None
        self._starting = asyncio.Lock()
        self._gap_owed, self._gap_at = False, -_GAP_SECONDS
        self._queues: dict[str, QueueSchema] = {}
        self._imports: dict[ImportId, bytes] = {}
        self._queues_at = self._tokens_at = 0.0
        self._past: dict[datetime, tuple[float, Changes]] = {}
        self._past_lock = asyncio.Lock()

    @property
    def listening(self) -> int:
        """The number of subscribers."""
        return len(self._listeners)

    async def join(self, token_id: TokenId, wants: Wants, last_event_id: str | None) -> Subscriber:
        """Subscribe from now on, or from the end of an earlier connection; raises Problem (429) at the client limit."""
        most = self._app.settings.http_event_clients_max
        if len(self._listeners) >= most:
            raise Problem("too_many_requests", f"{most:,} clients are already connected", {"retry-after": "30"})
        listener = Subscriber(token_id, wants)
        self._listeners.add(listener)  # first: changes during the query of the past come twice, not never
        try:
            now = await self._started()
            if last_event_id is None:
                _give(listener, [_event("ready"), _mark(now)], now)
            else:
                await self._catch_up(listener, last_event_id, now)
        except BaseException:
            self.leave(listener)
            raise
        return listener

    def sign_of_life(self) -> bytes:
        """Return a keep-alive for an idle subscriber: the id from which it would resume, if there is one yet."""
        return b":\n\n" if self._sent_until is None else _mark(self._sent_until)

    def leave(self, listener: Subscriber) -> None:
        """Remove a subscriber."""
        self._listeners.discard(listener)

    async def close(self) -> None:
        """End all subscriptions, and stop polling."""
        for listener in self._listeners:
            listener.end()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    # -- after a reconnect -------------------------------------------------------------------------

    async def _catch_up(self, listener: Subscriber, last_event_id: str, now: datetime) -> None:
        since = _moment(last_event_id)
        ready = _event("ready")
        if since is None or not timedelta() <= now - since + _LOOK_BACK <= _PAST_MAX:
            _give(listener, [ready, _gap(), _mark(now)], now)
            return
        past = await self._changes_since(since)
        wants = listener.wants
        events = [self._job_event(change, wants) for change in past.jobs if wants.job(change)]
        imports = await self._app.store.changed_imports(since - _LOOK_BACK, _CAUGHT_UP_MAX)
        events += [self._import_event(record, wants) for record in imports if wants.imported(record)]
        if past.more or len(events) > _CAUGHT_UP_MAX:
            events = [_gap()]
        _give(listener, [ready, *events, _mark(past.looked_at)], past.looked_at)

    async def _changes_since(self, since: datetime) -> Changes:
        """Return the changes since about `since`; requests at about the same time share one query."""
        rounded = since - (since - _EPOCH) % _PAST_SHARED
        async with self._past_lock:
            kept = self._past.get(rounded)
            # A kept answer must reach to the last poll: polling gives this subscriber only later changes.
            if kept is None or time.monotonic() > kept[0] or kept[1].looked_at <= (self._since or rounded):
                self._past = {at: kept for at, kept in self._past.items() if time.monotonic() <= kept[0]}
                found = await self._app.store.changes(rounded - _LOOK_BACK, _LOOK_MAX)
                kept = self._past[rounded] = time.monotonic() + _PAST_SECONDS, found
        return kept[1]

    # -- polling -----------------------------------------------------------------------------------

    async def _started(self) -> datetime:
        """Start polling if it does not run; returns the time since which changes are sent."""
        async with self._starting:
            if self._looking is None or self._looking.done() or self._since is None:
                # Earlier changes are not news: the first poll looks back and sees them again.
                known = await self._app.store.changes(await self._app.store.now() - _LOOK_BACK, _LOOK_MAX)
                self._since, self._sent = known.looked_at, _signatures(known)
                self._sent_until = known.looked_at
                await self._changed_imports(known.looked_at)  # not news either
                if self._looking is None or self._looking.done():
                    self._looking = asyncio.create_task(self._look_on())
            return self._since

    async def _look_on(self) -> None:
        took = 0.0
        while self._listeners:
            # A busy store is polled less often.
            await asyncio.sleep(max(self._seconds, took * _LOOK_SHARE))
            began = time.monotonic()
            try:
                await self._look()
            except StoreError as error:
                logs.get().warning("events.delayed", reason=str(error))
                await asyncio.sleep(_AWAY_SECONDS)
            except Exception as error:
                logs.get().error("events.failed", exc_info=error)  # a bug must not end the polling
                await asyncio.sleep(_AWAY_SECONDS)
            took = time.monotonic() - began
        self._since = None

    async def _look(self) -> None:
        since = self._since
        assert since is not None
        found = await self._app.store.changes(since - _LOOK_BACK, _LOOK_MAX)
        states = _signatures(found)
        news = [change for change in found.jobs if self._sent.get(change.id) != states[change.id]]
        self._since, self._sent = found.looked_at, states
        await self._tell(news, found)
        await self._tell_imports(since, found.looked_at)
        now = time.monotonic()
        if now - self._queues_at >= _QUEUES_SECONDS and any(wants.queues for wants in self._listeners.wants):
            self._queues_at = now
            await self._look_at_queues(found.looked_at)
        self._sent_until = found.looked_at
        if now - self._tokens_at >= _TOKENS_SECONDS:
            self._tokens_at = now
            await self._check_tokens()

    async def _tell(self, news: Sequence[JobChange], found: Changes) -> None:
        by_id = {change.id: change for change in news}
        made: dict[tuple[JobId, bool], bytes] = {}
        mark, gap = _mark(found.looked_at), self._gap_due(found.more)
        for wants in self._listeners.wants if news or gap else ():
            # Filters on one job are many and all differ: look the job up, and do not compare every change.
            likely = by_id.values() if wants.job_id is None else [by_id[i] for i in {wants.job_id} & by_id.keys()]
            events = []
            for change in likely:
                if wants.job(change):
                    key = change.id, wants.company_id is not None
                    if key not in made:
                        made[key] = self._job_event(change, wants)
                    events.append(made[key])
            if gap:
                events.append(_gap())
            if events:
                await self._listeners.give(wants, [*events, mark], _gap() + mark)
            else:
                await asyncio.sleep(0)

    def _gap_due(self, more: bool) -> bool:
        """Return whether to send a gap now: all clients reload after one, so at most one is sent per 5 s."""
        self._gap_owed = self._gap_owed or more
        if not self._gap_owed or time.monotonic() - self._gap_at < _GAP_SECONDS:
            return False
        self._gap_owed, self._gap_at = False, time.monotonic()
        return True

    def _job_event(self, change: JobChange, wants: Wants) -> bytes:
        return _event("job", JobChangeSchema.of(change, self._redactor(wants)))

    def _redactor(self, wants: Wants) -> Redactor:
        return self._app.redact if wants.company_id is None else self._for_company

    async def _changed_imports(self, since: datetime) -> list[ImportRecord]:
        """Return the imports whose event differs from the one sent last."""
        records = await self._app.store.changed_imports(since - _LOOK_BACK, _LOOK_MAX)
        made = {record.id: self._import_event(record, Wants()) for record in records}
        news = [record for record in records if self._imports.get(record.id) != made[record.id]]
        self._imports = made
        return news

    async def _tell_imports(self, since: datetime, at: datetime) -> None:
        news, mark = await self._changed_imports(since), _mark(at)
        made: dict[tuple[ImportId, bool], bytes] = {}
        for wants in self._listeners.wants if news else ():
            events = []
            for record in news:
                if wants.imported(record):
                    key = record.id, wants.company_id is not None
                    if key not in made:
                        made[key] = self._import_event(record, wants)
                    events.append(made[key])
            if events:
                await self._listeners.give(wants, [*events, mark], _gap() + mark)

    def _import_event(self, record: ImportRecord, wants: Wants) -> bytes:
        return _event("import", ImportChangeSchema.of(record, self._redactor(wants)))

    async def _look_at_queues(self, at: datetime) -> None:
        queues = {queue.name: QueueSchema.of(queue) for queue in await self._app.store.queues()}
        changed = [queues.get(name) or _empty(name) for name in sorted(queues.keys() | self._queues.keys())]
        changed = [queue for queue in changed if not _same(queue, self._queues.get(queue.name))]
        self._queues = queues
        made = {queue.name: _event("queue", queue) for queue in changed}
        for wants in self._listeners.wants if made else ():
            events = [event for name, event in made.items() if wants.queues and wants.queue in (None, name)]
            if events:
                await self._listeners.give(wants, events, _gap() + _mark(at))

    async def _check_tokens(self) -> None:
        """End the subscriptions of tokens that were revoked or have expired."""
        store = self._app.store
        now = await store.now()
        good = {token.id for token in await tokens.listed(store) if tokens.is_valid(token, now)}
        for listener in self._listeners:
            if listener.token_id not in good:
                listener.end()


def _give(listener: Subscriber, events: Sequence[bytes], at: datetime) -> None:
    listener.give(batches(events), _gap() + _mark(at))


def _signatures(found: Changes) -> dict[JobId, tuple[Any, ...]]:
    """Return the state of each job by id, to detect changes since the last poll."""
    return {c.id: (c.status, c.lease, c.attempts, c.progress, c.message, c.changed_at) for c in found.jobs}


def _same(queue: QueueSchema, before: QueueSchema | None) -> bool:
    """Return whether the counts are equal; ignores the age of the oldest job, which grows by itself."""
    return before is not None and queue == before.with_(oldest_ready_seconds=queue.oldest_ready_seconds)


def _empty(name: str) -> QueueSchema:
    return QueueSchema(name=name, paused=False, ready=0, delayed=0, processing=0, oldest_ready_seconds=None)


def _event(kind: str, data: Schema | None = None) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), b"{}" if data is None else data.json_bytes())


def _gap() -> bytes:
    """Return the event for more changes than fit: clients should reload what they show."""
    return _event("gap")


def _mark(at: datetime) -> bytes:
    """Return the id from which a client resumes. It follows the events, so that a client that is cut off among them
    gets them again."""
    return b"id: %d\n\n" % _micros(at)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _moment(event_id: str) -> datetime | None:
    found = _ID.fullmatch(event_id)
    return _EPOCH + timedelta(microseconds=int(found[0])) if found else None
