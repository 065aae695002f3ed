"""Many jobs of an operation in few calls: one update per subject, each job settled by what became of its subject's.

jobs ─ by subject, oldest first ─▶ held? ─ the newest value of each property ─ without what newer jobs wrote ─▶ updates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.errors import BadPayload, CallFailed, Snooze, StoreUnavailable
from rowlock.ids import uuid7
from rowlock.jobs.job import Job
from rowlock.storage.call_verbs import CallVerbs
from rowlock.sync.call import Calls
from rowlock.sync.hold import Hold, outdated
from rowlock.sync.line import Line
from rowlock.sync.operation import Operation, Update
from rowlock.sync.single import away, held_elsewhere, rewrite

SUPERSEDED = {"skipped": True, "reason": "superseded"}
_MORE_CALLS_MAX = 24  # of one batch, to find out which of its updates the service does not take


@dataclass(frozen=True, slots=True)
class Wish:
    """What one job wants written."""

    job: Job
    subject: str
    properties: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Merged:
    """One update, and which job each of its properties comes from."""

    update: Update
    sources: dict[str, str]
    wishes: list[Wish]


def merge(subject: str, wishes: Sequence[Wish], marks: Mapping[str, str]) -> Merged:
    """One update from many wishes about one subject: the newest wins, and what was written by newer ones is left."""
    if len(wishes) == 1 and not marks:
        (wish,) = wishes
        return Merged(
            Update(subject, wish.properties, [wish.job]), dict.fromkeys(wish.properties, wish.job.id), list(wishes)
        )
    properties: dict[str, Any] = {}
    sources: dict[str, str] = {}
    ordered = sorted(wishes, key=lambda wish: wish.job.id)
    for wish in ordered:
        for name, value in wish.properties.items():
            if not outdated(marks.get(name), wish.job.id):
                properties[name] = value
                sources[name] = wish.job.id
    return Merged(Update(subject, properties, [wish.job for wish in ordered]), sources, ordered)


class Batch:
    """The jobs of one account and credential that came together."""

    def __init__(
        self, operation: Operation, wishes: Sequence[Wish], line: Line, token: str | None, store: CallVerbs | None
    ) -> None:
        self._operation = operation
        self._wishes = wishes
        self._store = store
        self._hold = None if store is None else Hold(store, line.key, uuid7(), line.timeout_seconds)
        self._calls = Calls([wish.job for wish in wishes], line, token, self._hold)
        self._more_calls = _MORE_CALLS_MAX
        self._entries: dict[str, Any] = {}  # by job: a result, or an exception
        self._written: dict[str, dict[str, str]] = {}

    async def work(self) -> dict[str, Any]:
        """Do them; what became of each, by the id of its job."""
        stopped: Snooze | None = None
        try:
            marks = await self._held()
            try:
                await self._write(marks)
            except StoreUnavailable as error:
                stopped = away(error)
            finally:
                lost = [] if self._hold is None else await self._hold.end(self._written)
        except StoreUnavailable as error:
            snooze = away(error)
            return {wish.job.id: snooze for wish in self._wishes}
        for wish in self._wishes:
            if wish.subject in lost:
                self._entries[wish.job.id] = rewrite()
            elif stopped is not None:
                self._entries.setdefault(wish.job.id, stopped)
        return self._entries

    async def _held(self) -> dict[str, Mapping[str, str]]:
        """The subjects that are ours, with their marks; jobs about others wait."""
        subjects = list(dict.fromkeys(wish.subject for wish in self._wishes))
        if self._hold is None:
            return {subject: {} for subject in subjects}
        granted = await self._hold.take(subjects)
        for wish in self._wishes:
            if wish.subject not in granted:
                self._entries[wish.job.id] = held_elsewhere(wish.job)
        return dict(self._hold.marks)

    async def _write(self, marks: Mapping[str, Mapping[str, str]]) -> None:
        by_subject: dict[str, list[Wish]] = {subject: [] for subject in marks}
        for wish in self._wishes:
            if wish.subject in by_subject:
                by_subject[wish.subject].append(wish)
        merged = [merge(subject, wishes, marks[subject]) for subject, wishes in by_subject.items()]
        for one in await self._send(merged):
            # One bad value must not take the others along: each job's on its own, as if they had not met.
            for wish in one.wishes:
                await self._send([merge(wish.subject, [wish], marks[wish.subject])])

    async def _send(self, merged: list[Merged]) -> list[Merged]:
        """Have these written, in halves where the service does not take them together; what is to be taken apart."""
        for one in merged:
            if not one.sources:
                self._note(one, SUPERSEDED)
        merged = [one for one in merged if one.sources]
        if not merged:
            return []
        try:
            entries = await self._operation.handler(self._calls, [one.update for one in merged])
            if entries is None:
                entries = [None] * len(merged)
            if not isinstance(entries, list) or len(entries) != len(merged):
                raise BadPayload(
                    f"{self._operation.type}: a batch function returns None or a list with one entry per update"
                )
        except CallFailed as error:
            if len(merged) > 1 and _unwanted(error) and self._more_calls >= 2:
                self._more_calls -= 2
                middle = len(merged) // 2
                return await self._send(merged[:middle]) + await self._send(merged[middle:])
            entries = [error] * len(merged)
        except StoreUnavailable:
            raise
        except Exception as error:
            entries = [error] * len(merged)
        apart = []
        for one, entry in zip(merged, entries, strict=True):
            self._note(one, entry)
            if len(one.wishes) > 1 and _unwanted(entry) and self._more_calls >= len(one.wishes):
                self._more_calls -= len(one.wishes)
                apart.append(one)
        return apart

    def _note(self, one: Merged, entry: Any) -> None:
        for wish in one.wishes:
            self._entries[wish.job.id] = entry
        if one.sources and not isinstance(entry, BaseException):
            self._written.setdefault(one.update.subject, {}).update(one.sources)


def _unwanted(entry: object) -> bool:
    """Whether the service read it and does not take it: what is wrong is in what was sent."""
    return isinstance(entry, CallFailed) and entry.status is not None and 400 <= entry.status < 500
