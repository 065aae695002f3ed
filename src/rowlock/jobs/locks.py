"""Idempotency locks: work that must be done once. The state of a lock decides, and its token fences the holder.

| the lock is                      | same data? | then                                |
| -------------------------------- | ---------- | ----------------------------------- |
| absent                           |            | proceed                             |
| running, renewed recently        |            | skip: already_running               |
| running, and stale               |            | take over                           |
| completed                        | yes        | skip: already_completed             |
| completed                        | no         | run again                           |
| failed                           |            | retry                               |

A lock that an earlier attempt of the same job left running is taken over at once: the lease of that attempt has ended,
or this attempt would not run. The holder renews its lock while its event loop runs, so a lock goes stale only if the
holder hangs or dies. A handler that returns early because it was asked to stop leaves its lock uncompleted. If the lock
store is unreachable or fails, the job runs without a lock (fail-open) and an error is logged.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rowlock.control import locks
from rowlock.errors import BadPayload, SettingsError, StoreError
from rowlock.jobs.payload import payload_hash
from rowlock.observe.metrics import Measures
from rowlock.observe.redaction import Redactor
from rowlock.settings import NAME_LENGTH_MAX
from rowlock.storage.contract import Store
from rowlock.storage.reliability import LockAnswer, LockDecision, LockKey

Scope = str | Callable[[Mapping[str, Any]], str]

_RENEWALS = 3  # of a lock, within the time after which it would go stale

stopped_early: ContextVar[Callable[[], bool] | None] = ContextVar("stopped_early", default=None)
"""In a runner: whether the handler was asked to stop and has read `job.cancelled`, so its work may be incomplete."""

_FIELD = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class LockContext:
    """The dependencies of a lock."""

    store: Store
    stale_seconds: float
    redact: Redactor
    measures: Measures
    log: Any


@dataclass(frozen=True, slots=True)
class LockRule:
    """The lock that the jobs of one type take."""

    job_key: str
    scope: Scope

    def check(self, type_name: str, fields: set[str] | None) -> None:
        """Raise SettingsError if the scope names a field that the handler does not take."""
        if isinstance(self.scope, str) and fields is not None:
            unknown = {name for name, _ in _FIELD.findall(self.scope)} - fields
            if unknown:
                raise SettingsError(
                    f"job {type_name!r}: its lock's scope names {', '.join(sorted(unknown))}, "
                    f"which the handler does not have; its parameters: {', '.join(sorted(fields)) or 'none'}"
                )

    def key(self, payload: Mapping[str, Any], company_id: str | None) -> LockKey:
        """Return the key of the lock for this payload; raises BadPayload if the payload gives no valid scope."""
        scope = self.scope(payload) if callable(self.scope) else _FIELD.sub(lambda f: _value(f, payload), self.scope)
        if not isinstance(scope, str) or not 0 < len(scope) <= NAME_LENGTH_MAX:
            raise BadPayload(f"lock {self.job_key}: the scope must be a text of 1 to {NAME_LENGTH_MAX} characters")
        return LockKey(company_id or "", self.job_key, scope)


def _value(field: re.Match[str], payload: Mapping[str, Any]) -> str:
    found = payload.get(field[1])
    if found is None:
        if field[2] is None:
            raise BadPayload(f"the scope of its lock needs {field[1]!r}, which the payload lacks")
        return field[2]
    return str(found)


class Lock:
    """One use of a lock: `async with` takes it, and ends it with the block.

    If `skipped` is true, another holder does the work or has done it: leave the block without doing any.
    """

    def __init__(self, lock_context: LockContext, key: LockKey, payload: Mapping[str, Any], holder: str) -> None:
        self._lock_context = lock_context
        self.key = key
        self._hash = payload_hash(payload, lock_context.redact)
        self._holder = holder
        self._answer: LockAnswer | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def skipped(self) -> bool:
        return self._answer is not None and not self._answer.decision.go

    @property
    def reason(self) -> str | None:
        """Why it is skipped: already_running or already_completed; None if it is not."""
        return self._answer.decision.value if self._answer is not None and self.skipped else None

    @property
    def decision(self) -> LockDecision | None:
        """What the state of the lock decided; None if the store failed."""
        return None if self._answer is None else self._answer.decision

    async def __aenter__(self) -> Self:
        context = self._lock_context
        try:
            self._answer = await locks.take(context.store, self.key, self._hash, self._holder, context.stale_seconds)
        except StoreError as error:
            context.measures.add("lock", {"job_key": self.key.job_key, "outcome": "failed_open"})
            context.log.error("lock.failed_open", lock=self._name, holder=self._holder, reason=str(error))
            return self
        context.measures.add("lock", {"job_key": self.key.job_key, "outcome": self._answer.decision.value})
        if self._answer.decision is LockDecision.TAKE_OVER:
            context.log.warning("lock.taken_over", lock=self._name, holder=self._holder, last=self._answer.holder)
        elif self.skipped:
            context.log.info("lock.skipped", lock=self._name, holder=self._answer.holder, reason=self.reason)
        if not self.skipped:
            self._renewing = asyncio.create_task(self._renew(self._answer.token))
        return self

    async def _renew(self, token: int) -> None:
        """Renew the lock while this process works."""
        context = self._lock_context
        while True:
            await asyncio.sleep(context.stale_seconds / _RENEWALS)
            try:
                if not await locks.renew(context.store, self.key, token):
                    return  # it was taken over: the end of the block logs it
            except StoreError as error:
                context.log.warning("lock.not_renewed", lock=self._name, holder=self._holder, reason=str(error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._answer is None or not self._answer.decision.go:
            return
        context = self._lock_context
        if self._renewing is not None:
            self._renewing.cancel()
        stopped = stopped_early.get()
        completed = error is None and not (stopped is not None and stopped())
        try:
            kept = await locks.end(context.store, self.key, self._answer.token, completed=completed)
        except StoreError as failed:
            context.log.error("lock.not_ended", lock=self._name, holder=self._holder, reason=str(failed))
            return
        if not kept:
            context.measures.add("lock", {"job_key": self.key.job_key, "outcome": "lost"})
            context.log.warning(
                "lock.lost", lock=self._name, holder=self._holder, reason="it was stale and was taken over"
            )

    @property
    def _name(self) -> str:
        return "/".join((self.key.company_id or "-", self.key.job_key, self.key.scope_key))
