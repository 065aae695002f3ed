"""The HTTP client of one account: take a permit, send the request, end the permit, pause the fleet if limited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowlock.errors import CallFailed, CallRefused, CallUncertain, RateLimited, Snooze, StoreError
from rowlock.observe.metrics import Measures
from rowlock.observe.redaction import REDACTED
from rowlock.storage.calls import CallLimit
from rowlock.sync.rate_limiter import Closed, Permit, Permits, RateLimiter
from rowlock.sync.request import Cut, NotSent, Wire
from rowlock.sync.response import Answer
from rowlock.sync.subject_lock import SubjectLock
from rowlock.sync.subject_queue import SubjectQueue

if TYPE_CHECKING:
    import httpx

RETRIES = 5
PATIENCE_SECONDS = 60.0
RESTS_SECONDS_MAX = 120.0  # per attempt, over all its calls: longer rests could run into the deadline
_REST_SECONDS_MAX = 86_400.0
_SLACK_SECONDS = 5.0  # longest time from a permit to its call
_BETWEEN = frozenset({502, 504, *range(520, 528)})  # statuses of a proxy in front of the service


@dataclass(frozen=True, slots=True)
class Meaning:
    """How to interpret the answers of one service."""

    refused: Callable[[Answer], bool]
    limited: Callable[[Answer], float | None]
    spent: Callable[[Answer], float | None] | None  # seconds without calls after a 2xx that used up the budget
    rest_seconds: tuple[float, float]  # first rest (doubled each time) and maximum, if the answer gives no time
    advice: str  # what to do if the service refuses the credential


@dataclass(slots=True)
class Caller:
    """The credential of one attempt, and how long it has rested. Companies that share an account may differ in it."""

    token: str | None
    rested_seconds: float = 0.0


class ServiceLimited(RateLimited):
    """The service still answered "too many calls" after the longest rest that one attempt may take."""


class Client:
    """Calls one account of a service, for one event loop."""

    def __init__(
        self,
        integration: str,
        key: str,
        wire: Wire,
        permits: Permits,
        limits: Mapping[str | None, list[CallLimit]],
        meaning: Meaning,
        timeout_seconds: float,
        secrets: Sequence[str],
        measures: Measures,
        log: Any,
    ) -> None:
        self.key = key
        self.timeout_seconds = timeout_seconds
        self.subject_queue = SubjectQueue()
        self._integration = integration
        self._wire = wire
        self._permits = permits
        self._rest_key = limits[None][0].key  # a limit that every call counts for
        hold_seconds = timeout_seconds + 2 * _SLACK_SECONDS
        self._rate_limiters = {group: RateLimiter(permits, mine, hold_seconds) for group, mine in limits.items()}
        self._meaning = meaning
        self._secrets = secrets  # credentials in the headers of every call
        self._measures = measures
        self._log = log

    async def call(
        self,
        method: str,
        path: str,
        caller: Caller,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        group: str | None = None,
        accept: Collection[int] = (),
        subject_lock: SubjectLock | None = None,
    ) -> Answer:
        """Make a call. Returns an answer with a 2xx status or a status in `accept`.

        Retries "too many calls" after a rest of the whole fleet, then raises ServiceLimited. Raises CallFailed,
        CallRefused or CallUncertain at once for any other answer.
        """
        headers = {} if caller.token is None else {"authorization": f"Bearer {caller.token}"}
        request = self._wire.request(method, path, headers=headers, json=json, params=params)
        rest_seconds = 0.0
        for number in range(RETRIES + 1):
            answer = await self._once(request, f"{method} {path}", caller, group, subject_lock)
            wait = None if answer.ok else self._meaning.limited(answer)
            if wait is None:
                if answer.ok and self._meaning.spent and (left := self._meaning.spent(answer) or 0.0) > 0:
                    with suppress(StoreError):  # the call itself succeeded
                        await self._rest(left, "its budget is used up")
                if answer.ok or answer.status in accept:
                    return answer
                if method != "GET" and answer.status in _BETWEEN and subject_lock is not None:
                    subject_lock.doubtful = True
                raise self._error(method, path, answer, caller)
            low, high = self._meaning.rest_seconds
            rest_seconds = min(wait, _REST_SECONDS_MAX) if wait > 0 else min(low * 2**number, high)
            await self._rest(rest_seconds, f"{answer.status} {answer.category or ''} {answer.message}".strip())
            caller.rested_seconds += rest_seconds
            if caller.rested_seconds > RESTS_SECONDS_MAX:
                break
        raise ServiceLimited(self.key, seconds=rest_seconds, reason=f"{method} {path}: limited {number + 1} times")

    async def _once(
        self, request: httpx.Request, what: str, caller: Caller, group: str | None, subject_lock: SubjectLock | None
    ) -> Answer:
        rate_limiter = self._rate_limiters.get(group, self._rate_limiters[None])
        permit = await self._permit(rate_limiter, group, subject_lock)
        over, whole, made, status = True, True, True, "none"
        try:
            answer = await self._wire.send(request)
            if not answer.ok:
                answer = answer.cleaned(lambda text: self.plain(text, caller))
            status = f"{answer.status // 100}xx" if answer.status != 429 else "429"
        except NotSent as error:
            made = False
            raise CallFailed(f"{what}: the service cannot be reached: {self.plain(str(error), caller)}") from None
        except Cut as error:
            over, whole = not error.under_way, False
            raise CallUncertain(f"{what}: {self.plain(str(error), caller)}; it may have been done") from None
        except asyncio.CancelledError:
            over = whole = False
            raise
        finally:
            self._measures.add("sync_call", {"integration": self._integration, "status": status})
            if over:
                rate_limiter.end_later(permit.id, made=made)  # else the request may still arrive: the permit expires
            if not whole and subject_lock is not None and request.method != "GET":
                subject_lock.doubtful = True  # the service may still be processing it: the hold expires
        fields = {"call": what, "status": answer.status, "request_id": answer.request_id}
        self._log.debug("sync.call", integration=self._integration, **fields)
        return answer

    async def _permit(self, rate_limiter: RateLimiter, group: str | None, subject_lock: SubjectLock | None) -> Permit:
        """Return a fresh permit, with the subject lock renewed for the call.

        Raises Snooze or RateLimited if no call may be made for too long.
        """
        while True:
            try:
                permit = await rate_limiter.permit(PATIENCE_SECONDS)
            except Closed as closed:
                if rate_limiter is not self._rate_limiters[None]:
                    raise Snooze(closed.seconds, f"no call of the group {group} may be made yet") from None
                raise RateLimited(self.key, seconds=closed.seconds, reason="out of calls") from None
            fresh = False
            try:
                if subject_lock is not None:
                    await subject_lock.last()
                fresh = permit.fresh(_SLACK_SECONDS)
            finally:
                if not fresh:
                    rate_limiter.end_later(permit.id, made=False)
            if fresh:
                return permit

    async def _rest(self, seconds: float, reason: str) -> None:
        self._log.warning("sync.rest", account=self.key, seconds=round(seconds, 3), reason=reason)
        self._measures.add("sync_rest", {"integration": self._integration})
        await self._permits.rest_calls(self._rest_key, seconds)

    def _error(
        self, method: str, path: str, answer: Answer, caller: Caller
    ) -> CallFailed | CallRefused | CallUncertain:
        parts = [f"{method} {path}: {answer.status}", answer.category or "", answer.message]
        text = " ".join(part for part in parts if part)
        if answer.request_id is not None:
            text += f" (request {answer.request_id})"
        text = self.plain(text, caller)
        if self._meaning.refused(answer):
            return CallRefused(f"{text}; {self._meaning.advice}", answer=answer)
        if method != "GET" and answer.status in _BETWEEN:
            return CallUncertain(f"{text}; it may have been done", answer=answer)
        return CallFailed(text, answer=answer)

    def plain(self, text: str, caller: Caller) -> str:
        """Return the text with credentials redacted: a service's answer may repeat the request."""
        for secret in (*self._secrets, caller.token):
            if secret:
                text = text.replace(secret, REDACTED)
        return text

    async def close(self) -> None:
        """Wait a few seconds at most until the store has recorded the ended permits."""
        for rate_limiter in self._rate_limiters.values():
            await rate_limiter.close()
