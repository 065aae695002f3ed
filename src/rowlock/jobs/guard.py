"""Guards: work that must be done once, whoever asks for it. The state of a lock decides, and its token fences.

| the lock is                      | same data? | then                                |
| -------------------------------- | ---------- | ----------------------------------- |
| not there                        |            | proceed                             |
| running, taken lately            |            | skip: already_running               |
| running, and stale               |            | take over                           |
| completed                        | yes        | skip: already_completed             |
| completed                        | no         | run again                           |
| failed                           |            | retry                               |

A lock that an earlier attempt of the same job left running is taken over at once: its lease is over, or this one
would not run. Where the locks themselves cannot be had, the work goes on without (and a line says so).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rowlock.errors import BadPayload, SettingsError, StoreError
from rowlock.jobs.payload import payload_hash
from rowlock.observe.metrics import Measures
from rowlock.observe.redact import Redactor
from rowlock.settings import NAME_LENGTH_MAX
from rowlock.storage.base import Store
from rowlock.storage.reliability import LockAnswer, LockKey, LockVerdict

Scope = str | Callable[[Mapping[str, Any]], str]

_FIELD = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")


@dataclass(frozen=True, slots=True)
class Guarding:
    """What taking a lock needs."""

    store: Store
    stale_seconds: float
    redact: Redactor
    measures: Measures
    log: Any


@dataclass(frozen=True, slots=True)
class GuardRule:
    """Which lock the jobs of one type take."""

    job_key: str
    scope: Scope

    def check(self, type_name: str, fields: set[str] | None) -> None:
        """Raise SettingsError when the scope names a field that the handler does not take."""
        if isinstance(self.scope, str) and fields is not None:
            unknown = {name for name, _ in _FIELD.findall(self.scope)} - fields
            if unknown:
                raise SettingsError(
                    f"job {type_name!r}: its guard's scope names {', '.join(sorted(unknown))}, "
                    f"which the handler does not take; it takes {', '.join(sorted(fields)) or 'nothing'}"
                )

    def key(self, payload: Mapping[str, Any], company_id: str | None) -> LockKey:
        """The lock of a job with this payload."""
        scope = self.scope(payload) if callable(self.scope) else _FIELD.sub(lambda f: _value(f, payload), self.scope)
        if not isinstance(scope, str) or not 0 < len(scope) <= NAME_LENGTH_MAX:
            raise BadPayload(f"guard {self.job_key}: the scope must be a text of 1 to {NAME_LENGTH_MAX} characters")
        return LockKey(company_id or "", self.job_key, scope)


def _value(field: re.Match[str], payload: Mapping[str, Any]) -> str:
    found = payload.get(field[1])
    if found is None:
        if field[2] is None:
            raise BadPayload(f"the scope of its guard needs {field[1]!r}, which the payload lacks")
        return field[2]
    return str(found)


class Lock:
    """A lock that was asked for: `async with` takes it, and ends it with the block.

    Where `skipped` is true someone else does the work or has done it: leave the block without doing any.
    """

    def __init__(self, guarding: Guarding, key: LockKey, payload: Mapping[str, Any], holder: str) -> None:
        self._guarding = guarding
        self.key = key
        self._hash = payload_hash(payload, guarding.redact)
        self._holder = holder
        self._answer: LockAnswer | None = None

    @property
    def skipped(self) -> bool:
        return self._answer is not None and not self._answer.verdict.go

    @property
    def reason(self) -> str | None:
        """Why it is skipped: already_running or already_completed."""
        return self._answer.verdict.value if self._answer is not None and self.skipped else None

    @property
    def verdict(self) -> LockVerdict | None:
        """What the state of the lock meant; None where it could not be asked for."""
        return None if self._answer is None else self._answer.verdict

    async def __aenter__(self) -> Self:
        g = self._guarding
        try:
            self._answer = await g.store.take_lock(self.key, self._hash, self._holder, g.stale_seconds)
        except StoreError as error:
            g.measures.add("lock", {"job_key": self.key.job_key, "outcome": "failed_open"})
            g.log.error("lock.failed_open", lock=self._name, holder=self._holder, reason=str(error))
            return self
        g.measures.add("lock", {"job_key": self.key.job_key, "outcome": self._answer.verdict.value})
        if self._answer.verdict is LockVerdict.TAKE_OVER:
            g.log.warning("lock.taken_over", lock=self._name, holder=self._holder, last=self._answer.holder)
        elif self.skipped:
            g.log.info("lock.skipped", lock=self._name, holder=self._answer.holder, reason=self.reason)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._answer is None or not self._answer.verdict.go:
            return
        g = self._guarding
        try:
            kept = await g.store.end_lock(self.key, self._answer.token, completed=error is None)
        except StoreError as failed:
            g.log.error("lock.not_ended", lock=self._name, holder=self._holder, reason=str(failed))
            return
        if not kept:
            g.measures.add("lock", {"job_key": self.key.job_key, "outcome": "lost"})
            g.log.warning("lock.lost", lock=self._name, holder=self._holder, reason="it was stale and was taken over")

    @property
    def _name(self) -> str:
        return "/".join((self.key.company_id or "-", self.key.job_key, self.key.scope_key))
