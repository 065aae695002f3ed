"""The line to one account of a service: permit, request, end, and what its answer means for everyone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rowlock.errors import CallFailed, CallRefused, CallUncertain, RateLimited, Snooze, StoreError
from rowlock.observe.metrics import Measures
from rowlock.observe.redact import REDACTED
from rowlock.storage.calls import CallLimit
from rowlock.sync.answer import Answer
from rowlock.sync.gate import Closed, Gate, Permit, Permits
from rowlock.sync.hold import Hold
from rowlock.sync.turns import Turns
from rowlock.sync.wire import Cut, NotSent, Wire

if TYPE_CHECKING:
    import httpx

RETRIES = 5
PATIENCE_SECONDS = 60.0
RESTS_SECONDS_MAX = 120.0  # of one attempt, all its calls together: or a long storm would run into its deadline
_REST_SECONDS_MAX = 86_400.0
_SLACK_SECONDS = 5.0  # from a permit to the call
_BETWEEN = frozenset({502, 504, *range(520, 528)})  # what stands before a service answers for it


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the answers of one service mean."""

    refused: Callable[[Answer], bool]
    limited: Callable[[Answer], float | None]
    spent: Callable[[Answer], float | None] | None  # of an answer that says yes: for how long to make no other call
    rest_seconds: tuple[float, float]  # of a limit without a word about it: the first, doubled each time, at most
    advice: str  # what to do when it refuses us


@dataclass(slots=True)
class Caller:
    """Who makes the calls of one attempt: companies that share an account may have credentials of their own."""

    token: str | None
    rested_seconds: float = 0.0


class Line:
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
        self.turns = Turns()
        self._integration = integration
        self._wire = wire
        self._permits = permits
        self._rest_key = limits[None][0].key  # one that every call counts for
        hold_seconds = timeout_seconds + 2 * _SLACK_SECONDS
        self._gates = {group: Gate(permits, mine, hold_seconds) for group, mine in limits.items()}
        self._meaning = meaning
        self._secrets = secrets  # of the headers that every call carries
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
        hold: Hold | None = None,
    ) -> Answer:
        """The answer, where it is 2xx or of a status in `accept`.

        What is limited is tried again, after a rest of the whole fleet, as long as the attempt may rest; all else
        raises at once.
        """
        headers = {} if caller.token is None else {"authorization": f"Bearer {caller.token}"}
        request = self._wire.request(method, path, headers=headers, json=json, params=params)
        rest_seconds = 0.0
        for number in range(RETRIES + 1):
            answer = await self._once(request, f"{method} {path}", caller, group, hold)
            wait = None if answer.ok else self._meaning.limited(answer)
            if wait is None:
                if answer.ok and self._meaning.spent and (left := self._meaning.spent(answer) or 0.0) > 0:
                    with suppress(StoreError):  # what was done is done
                        await self._rest(left, "its budget is used up")
                if answer.ok or answer.status in accept:
                    return answer
                if method != "GET" and answer.status in _BETWEEN and hold is not None:
                    hold.doubtful = True
                raise self._error(method, path, answer, caller)
            low, high = self._meaning.rest_seconds
            rest_seconds = min(wait, _REST_SECONDS_MAX) if wait > 0 else min(low * 2**number, high)
            await self._rest(rest_seconds, f"{answer.status} {answer.category or ''} {answer.message}".strip())
            caller.rested_seconds += rest_seconds
            if caller.rested_seconds > RESTS_SECONDS_MAX:
                break
        raise RateLimited(self.key, seconds=rest_seconds, reason=f"{method} {path}: limited {number + 1} times")

    async def _once(
        self, request: httpx.Request, what: str, caller: Caller, group: str | None, hold: Hold | None
    ) -> Answer:
        gate = self._gates.get(group, self._gates[None])
        permit = await self._permit(gate, group, hold)
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
                gate.end_later(permit.id, made=made)  # else it may still arrive, and the permit runs out by itself
            if not whole and hold is not None and request.method != "GET":
                hold.doubtful = True  # it may still be worked on, and the hold runs out by itself
        told = {"call": what, "status": answer.status, "request_id": answer.request_id}
        self._log.debug("sync.call", integration=self._integration, **told)
        return answer

    async def _permit(self, gate: Gate, group: str | None, hold: Hold | None) -> Permit:
        """A permit that is fresh, with a hold that lasts."""
        while True:
            try:
                permit = await gate.permit(PATIENCE_SECONDS)
            except Closed as closed:
                if gate is not self._gates[None]:
                    raise Snooze(closed.seconds, f"no call of the group {group} may be made yet") from None
                raise RateLimited(self.key, seconds=closed.seconds, reason="out of calls") from None
            fresh = False
            try:
                if hold is not None:
                    await hold.last()
                fresh = permit.fresh(_SLACK_SECONDS)
            finally:
                if not fresh:
                    gate.end_later(permit.id, made=False)
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
        """Without the credentials: what a service says may repeat what it was told."""
        for secret in (*self._secrets, caller.token):
            if secret:
                text = text.replace(secret, REDACTED)
        return text

    async def close(self) -> None:
        """Wait for what is to be told to the store, but not for long."""
        for gate in self._gates.values():
            await gate.close()
