"""Batch: many jobs of an operation in few calls. Jobs merge into one update per subject, whose result settles them.

jobs ─ group by subject, oldest first ─▶ lock subjects ─▶ newest value per property ─▶ drop outdated values ─▶ updates
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
from rowlock.sync.client import Client
from rowlock.sync.operation import Operation, Update
from rowlock.sync.single import away, held_elsewhere, rewrite
from rowlock.sync.subject_lock import SubjectLock, outdated

SUPERSEDED = {"skipped": True, "reason": "superseded"}
_MORE_CALLS_MAX = 24  # extra calls per batch, to find out which of its updates the service rejects


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """The properties that one job writes."""

    job: Job
    place: str  # position in the order of jobs
    subject: str
    properties: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Merged:
    """One update, and for each of its properties the place of the job that it comes from."""

    update: Update
    sources: dict[str, str]
    updates: list[PendingUpdate]


def merge(subject: str, updates: Sequence[PendingUpdate], marks: Mapping[str, str]) -> Merged:
    """Merge pending updates about one subject: the newest value wins, values that newer jobs wrote are left out."""
    if len(updates) == 1 and not marks:
        (update,) = updates
        return Merged(
            Update(subject, update.properties, [update.job]),
            dict.fromkeys(update.properties, update.place),
            list(updates),
        )
    properties: dict[str, Any] = {}
    sources: dict[str, str] = {}
    ordered = sorted(updates, key=lambda update: update.place)
    for update in ordered:
        for name, value in update.properties.items():
            if not outdated(marks.get(name), update.place):
                properties[name] = value
                sources[name] = update.place
    return Merged(Update(subject, properties, [update.job for update in ordered]), sources, ordered)


class Batch:
    """Runs claimed jobs that share an account and credential."""

    def __init__(
        self,
        operation: Operation,
        updates: Sequence[PendingUpdate],
        client: Client,
        token: str | None,
        store: CallVerbs | None,
    ) -> None:
        self._operation = operation
        self._updates = updates
        self._store = store
        self._subject_lock = None if store is None else SubjectLock(store, client.key, uuid7(), client.timeout_seconds)
        self._calls = Calls([update.job for update in updates], client, token, self._subject_lock)
        self._more_calls = _MORE_CALLS_MAX
        self._entries: dict[str, Any] = {}  # by job id: a result or an exception
        self._written: dict[str, dict[str, str]] = {}

    async def work(self) -> dict[str, Any]:
        """Run the jobs. Returns a result or exception by job id."""
        stopped: Snooze | None = None
        try:
            marks = await self._held()
            try:
                await self._write(marks)
            except StoreUnavailable as error:
                stopped = away(error)
            finally:
                lost = [] if self._subject_lock is None else await self._subject_lock.end(self._written)
        except StoreUnavailable as error:
            snooze = away(error)
            return {update.job.id: snooze for update in self._updates}
        for update in self._updates:
            if update.subject in lost:
                self._entries[update.job.id] = rewrite()
            elif stopped is not None:
                self._entries.setdefault(update.job.id, stopped)
        return self._entries

    async def _held(self) -> dict[str, Mapping[str, str]]:
        """Lock the subjects. Returns the locked ones with their marks; jobs about the others are snoozed."""
        subjects = list(dict.fromkeys(update.subject for update in self._updates))
        if self._subject_lock is None:
            return {subject: {} for subject in subjects}
        granted = await self._subject_lock.take(subjects)
        for update in self._updates:
            if update.subject not in granted:
                self._entries[update.job.id] = held_elsewhere(update.job)
        return dict(self._subject_lock.marks)

    async def _write(self, marks: Mapping[str, Mapping[str, str]]) -> None:
        by_subject: dict[str, list[PendingUpdate]] = {subject: [] for subject in marks}
        for update in self._updates:
            if update.subject in by_subject:
                by_subject[update.subject].append(update)
        merged = [merge(subject, updates, marks[subject]) for subject, updates in by_subject.items()]
        for one in await self._send(merged):
            # One bad value must not fail the others: send each job's update on its own, as if not merged.
            for update in one.updates:
                await self._send([merge(update.subject, [update], marks[update.subject])])

    async def _send(self, merged: list[Merged]) -> list[Merged]:
        """Write these updates, in halves if the service rejects them together. Returns the merges to send unmerged."""
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
            if len(one.updates) > 1 and _unwanted(entry) and self._more_calls >= len(one.updates):
                self._more_calls -= len(one.updates)
                apart.append(one)
        return apart

    def _note(self, one: Merged, entry: Any) -> None:
        for update in one.updates:
            self._entries[update.job.id] = entry
        if one.sources and not isinstance(entry, BaseException):
            self._written.setdefault(one.update.subject, {}).update(one.sources)


def _unwanted(entry: object) -> bool:
    """Whether the service rejected the content of the request (status 4xx)."""
    return isinstance(entry, CallFailed) and entry.status is not None and 400 <= entry.status < 500
