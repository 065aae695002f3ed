"""The hub: one look at the store for all who listen, however many they are.

store ──changes since the last look──▶ hub ──▶ those who want the same ──▶ listener (a few hundred events, then a gap)
      every half second, while anyone                                  └▶ listener …
      listens, from any process

An event tells the state of a job as it is; states that passed between two looks are left out. So nothing is lost that
matters, nothing is kept for those who are away, and a client that comes back asks the store what has changed since.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from rowlock.app import Rowlock
from rowlock.errors import StoreError
from rowlock.observe import logs
from rowlock.shapes import Shape, change_shape, import_change_shape, queue_shape
from rowlock.storage.access import Changes, JobChange, TokenId
from rowlock.storage.imports import ImportId, ImportRecord
from rowlock.storage.records import JobId
from rowlock.web.listener import Listener, Listeners, Wants, batches
from rowlock.web.problem import Problem

_LOOK_BACK = timedelta(seconds=2)  # a change may be committed so long after the time that it carries
_LOOK_MAX = 2_000
_LOOK_SHARE = 10  # between two looks passes so much more time than the first took
_PAST_MAX = timedelta(hours=1)
_PAST_SHARED = timedelta(seconds=5)  # clients that were cut off at about the same time share one look at the past
_PAST_SECONDS = 1.0
_QUEUES_SECONDS = 2.0
_TOKENS_SECONDS = 2.0
_GAP_SECONDS = 5.0  # between two gaps
_CAUGHT_UP_MAX = 250  # events of the past; more are a gap
_AWAY_SECONDS = 2.0

_ID = re.compile(r"[0-9]{1,16}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Hub:
    """Looks while anyone listens, and tells each what it wants."""

    def __init__(self, app: Rowlock) -> None:
        self._app = app
        self._seconds = app.settings.http_event_ms / 1_000
        self._listeners = Listeners()
        self._looking: asyncio.Task[None] | None = None
        self._since: datetime | None = None
        self._told: dict[str, tuple[Any, ...]] = {}
        self._told_until: datetime | None = None
        self._starting = asyncio.Lock()
        self._gap_owed, self._gap_at = False, -_GAP_SECONDS
        self._queues: dict[str, Shape] = {}
        self._imports: dict[ImportId, bytes] = {}
        self._queues_at = self._tokens_at = 0.0
        self._past: dict[datetime, tuple[float, Changes]] = {}
        self._past_lock = asyncio.Lock()

    @property
    def listening(self) -> int:
        """How many listen."""
        return len(self._listeners)

    async def join(self, token_id: TokenId, wants: Wants, last_event_id: str | None) -> Listener:
        """Listen from now on, or from where an earlier connection ended."""
        most = self._app.settings.http_event_clients_max
        if len(self._listeners) >= most:
            raise Problem("too_many_requests", f"{most:,} clients listen here already", {"retry-after": "30"})
        listener = Listener(token_id, wants)
        self._listeners.add(listener)  # from now on: what changes while the past is looked at comes twice, not never
        try:
            now = await self._started()
            if last_event_id is None:
                _give(listener, [_event("ready", {}), _mark(now)], now)
            else:
                await self._catch_up(listener, last_event_id, now)
        except BaseException:
            self.leave(listener)
            raise
        return listener

    def sign_of_life(self) -> bytes:
        """For a listener that has been given nothing for a while: where it would go on now."""
        return b":\n\n" if self._told_until is None else _mark(self._told_until)

    def leave(self, listener: Listener) -> None:
        """Listen no more."""
        self._listeners.discard(listener)

    async def close(self) -> None:
        """End all."""
        for listener in self._listeners:
            listener.end()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    # -- the past ----------------------------------------------------------------------------------

    async def _catch_up(self, listener: Listener, last_event_id: str, now: datetime) -> None:
        since = _moment(last_event_id)
        ready = _event("ready", {})
        if since is None or not timedelta() <= now - since + _LOOK_BACK <= _PAST_MAX:
            _give(listener, [ready, _gap(), _mark(now)], now)
            return
        past = await self._changes_since(since)
        events = [self._job_event(change) for change in past.jobs if listener.wants.job(change)]
        imports = await self._app.store.changed_imports(since - _LOOK_BACK, _CAUGHT_UP_MAX)
        events += [self._import_event(record) for record in imports if listener.wants.imported(record)]
        if past.more or len(events) > _CAUGHT_UP_MAX:
            events = [_gap()]
        _give(listener, [ready, *events, _mark(past.looked_at)], past.looked_at)

    async def _changes_since(self, since: datetime) -> Changes:
        """The same answer for all who ask at about the same time for about the same past."""
        rounded = since - (since - _EPOCH) % _PAST_SHARED
        async with self._past_lock:
            kept = self._past.get(rounded)
            # It must reach to the last look: what was told since then is told to this one too.
            if kept is None or time.monotonic() > kept[0] or kept[1].looked_at <= (self._since or rounded):
                self._past = {at: told for at, told in self._past.items() if time.monotonic() <= told[0]}
                found = await self._app.store.changes(rounded - _LOOK_BACK, _LOOK_MAX)
                kept = self._past[rounded] = time.monotonic() + _PAST_SECONDS, found
        return kept[1]

    # -- the present -------------------------------------------------------------------------------

    async def _started(self) -> datetime:
        """Look, if nobody did; the moment from which on changes are told."""
        async with self._starting:
            if self._looking is None or self._looking.done() or self._since is None:
                # What changed just before is no news: a look back will see it again.
                known = await self._app.store.changes(await self._app.store.now() - _LOOK_BACK, _LOOK_MAX)
                self._since, self._told = known.looked_at, _signatures(known)
                self._told_until = known.looked_at
                await self._changed_imports(known.looked_at)  # no news either
                if self._looking is None or self._looking.done():
                    self._looking = asyncio.create_task(self._look_on())
            return self._since

    async def _look_on(self) -> None:
        took = 0.0
        while self._listeners:
            # A store that is busy is asked less often.
            await asyncio.sleep(max(self._seconds, took * _LOOK_SHARE))
            began = time.monotonic()
            try:
                await self._look()
            except StoreError as error:
                logs.get().warning("events.delayed", reason=str(error))
                await asyncio.sleep(_AWAY_SECONDS)
            except Exception as error:
                logs.get().error("events.failed", exc_info=error)  # a fault of ours must not leave listeners in silence
                await asyncio.sleep(_AWAY_SECONDS)
            took = time.monotonic() - began
        self._since = None

    async def _look(self) -> None:
        since = self._since
        assert since is not None
        found = await self._app.store.changes(since - _LOOK_BACK, _LOOK_MAX)
        told = _signatures(found)
        news = [change for change in found.jobs if self._told.get(change.id) != told[change.id]]
        self._since, self._told = found.looked_at, told
        await self._tell(news, found)
        await self._tell_imports(since, found.looked_at)
        now = time.monotonic()
        if now - self._queues_at >= _QUEUES_SECONDS and any(wants.queues for wants in self._listeners.wants):
            self._queues_at = now
            await self._look_at_queues(found.looked_at)
        self._told_until = found.looked_at
        if now - self._tokens_at >= _TOKENS_SECONDS:
            self._tokens_at = now
            await self._check_tokens()

    async def _tell(self, news: Sequence[JobChange], found: Changes) -> None:
        by_id = {change.id: change for change in news}
        made: dict[JobId, bytes] = {}
        mark, gap = _mark(found.looked_at), self._gap_due(found.more)
        for wants in self._listeners.wants if news or gap else ():
            # Those who want one job are many, and each wants another: they are not compared with every change.
            likely = by_id.values() if wants.job_id is None else [by_id[i] for i in {wants.job_id} & by_id.keys()]
            events = []
            for change in likely:
                if wants.job(change):
                    if change.id not in made:
                        made[change.id] = self._job_event(change)
                    events.append(made[change.id])
            if gap:
                events.append(_gap())
            if events:
                await self._listeners.give(wants, [*events, mark], _gap() + mark)
            else:
                await asyncio.sleep(0)

    def _gap_due(self, more: bool) -> bool:
        """Whether to tell of a gap: all who hear of it read again what they show, so not at every look."""
        self._gap_owed = self._gap_owed or more
        if not self._gap_owed or time.monotonic() - self._gap_at < _GAP_SECONDS:
            return False
        self._gap_owed, self._gap_at = False, time.monotonic()
        return True

    def _job_event(self, change: JobChange) -> bytes:
        return _event("job", change_shape(change, self._app.redact))

    async def _changed_imports(self, since: datetime) -> list[tuple[ImportRecord, bytes]]:
        """Imports that are not as they were told, each with its event."""
        records = await self._app.store.changed_imports(since - _LOOK_BACK, _LOOK_MAX)
        made = {record.id: self._import_event(record) for record in records}
        news = [(record, made[record.id]) for record in records if self._imports.get(record.id) != made[record.id]]
        self._imports = made
        return news

    async def _tell_imports(self, since: datetime, at: datetime) -> None:
        news, mark = await self._changed_imports(since), _mark(at)
        for wants in self._listeners.wants if news else ():
            if events := [event for record, event in news if wants.imported(record)]:
                await self._listeners.give(wants, [*events, mark], _gap() + mark)

    def _import_event(self, record: ImportRecord) -> bytes:
        return _event("import", import_change_shape(record, self._app.redact))

    async def _look_at_queues(self, at: datetime) -> None:
        queues = {queue.name: queue_shape(queue) for queue in await self._app.store.queues()}
        changed = [queues.get(name) or _empty(name) for name in sorted(queues.keys() | self._queues.keys())]
        changed = [shape for shape in changed if not _same(shape, self._queues.get(shape["name"]))]
        self._queues = queues
        made = {shape["name"]: _event("queue", shape) for shape in changed}
        for wants in self._listeners.wants if made else ():
            events = [event for name, event in made.items() if wants.queues and wants.queue in (None, name)]
            if events:
                await self._listeners.give(wants, events, _gap() + _mark(at))

    async def _check_tokens(self) -> None:
        """A token that was revoked or has expired listens no more."""
        store = self._app.store
        now = await store.now()
        good = {
            t.id for t in await store.tokens() if t.revoked_at is None and (t.expires_at is None or t.expires_at > now)
        }
        for listener in self._listeners:
            if listener.token_id not in good:
                listener.end()


def _give(listener: Listener, events: Sequence[bytes], at: datetime) -> None:
    listener.give(batches(events), _gap() + _mark(at))


def _signatures(found: Changes) -> dict[JobId, tuple[Any, ...]]:
    """What makes the state of each job, to tell a new one from one that was told."""
    return {c.id: (c.status, c.lease, c.attempts, c.progress, c.message, c.changed_at) for c in found.jobs}


def _same(shape: Shape, before: Shape | None) -> bool:
    """Whether the counts are the same: the age of the oldest job grows by itself."""
    return before is not None and {**shape, "oldestReadySeconds": 0} == {**before, "oldestReadySeconds": 0}


def _empty(name: str) -> Shape:
    return {"name": name, "paused": False, "ready": 0, "delayed": 0, "processing": 0, "oldestReadySeconds": None}


def _event(kind: str, data: Shape) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(data))


def _gap() -> bytes:
    """There was more than fits: whoever shows something should read it again."""
    return _event("gap", {})


def _mark(at: datetime) -> bytes:
    """Everything up to then has been told: where a client goes on. Apart from the events, so that one who is cut off
    among them hears them again."""
    return b"id: %d\n\n" % _micros(at)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _moment(event_id: str) -> datetime | None:
    found = _ID.fullmatch(event_id)
    return _EPOCH + timedelta(microseconds=int(found[0])) if found else None
