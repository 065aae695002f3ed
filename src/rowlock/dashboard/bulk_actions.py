"""Retry or discard many dead letters: parse the selection from a form, then work in rounds of limited time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from rowlock.dashboard.job_filters import moment_of
from rowlock.dashboard.session import own_path
from rowlock.errors import RowlockError
from rowlock.http.problem import Problem
from rowlock.management.schemas.dead_letters import DiscardedSchema, RetriedSchema
from rowlock.management.schemas.requests import DeadLettersRequest

ROUND = 1_000  # jobs in one round
ROUNDS_SECONDS = 8.0  # then the page shows the progress and asks whether to continue
_NAMED_MAX = 5  # conflicts listed by id

Verb = Literal["retry", "discard"]
Ask = Callable[..., Awaitable[RetriedSchema | DiscardedSchema]]

_FILTERS = ("type", "queue", "companyId", "reason")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A selection of dead letters, and the progress of earlier requests with it."""

    asked: Mapping[str, Any]  # arguments of the management service
    said: Mapping[str, str]  # parameters of addresses and forms
    seen_at: datetime | None = None  # when the count was shown, in the store's time
    done: int = 0
    kept: int = 0  # conflicts
    cursor: str | None = None
    came_from: str = ""  # the page to return to

    @property
    def ids(self) -> list[str]:
        found: list[str] = self.asked.get("ids") or []
        return found

    def words(self, redacted: Callable[[str], str]) -> list[tuple[str, str]]:
        """Return the filter for people, as (label, value) pairs."""
        names = {"type": "Type", "queue": "Queue", "companyId": "Company", "reason": "Reason"}
        said = {key: redacted(value) if key == "reason" else value for key, value in self.said.items()}
        return [(names[key], value) for key, value in said.items() if key in names]


def chosen(given: Mapping[str, str]) -> Chosen:
    """Parse a selection from a form or query: ids, a filter, or `all`; raises Problem if it is not valid."""
    said = {key: given[key] for key in _FILTERS if given.get(key) or (key == "reason" and key in given)}
    if "reason" in said:
        said["reason"] = said["reason"].replace("\r\n", "\r")  # forms send a carriage return as CR LF
    said |= {key: given[key].strip() for key in ("ids", "all") if given.get(key, "").strip()}
    words: dict[str, Any] = {**said}
    if "ids" in said:
        words["ids"] = said["ids"].lower().split()
    words["all"] = said.get("all") == "1"
    if given.get("cursor"):
        words["cursor"] = given["cursor"]
    try:
        checked = DeadLettersRequest.model_validate(words)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:5])
        raise Problem("validation_failed", wrong.removeprefix(": ")) from None
    asked = checked.model_dump(exclude={"all", "dry_run", "limit", "cursor"}, exclude_none=True)
    numbers = {key: _number(given.get(key)) for key in ("done", "kept")}
    came_from = own_path(given["from"]) if given.get("from") else ""
    seen_at = moment_of(given.get("seenAt", ""))
    return Chosen(asked, said, seen_at, cursor=checked.cursor, came_from=came_from, **numbers)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result so far."""

    done: int = 0
    conflicts: list[str] = field(default_factory=list)
    cursor: str | None = None  # where to continue; None at the end
    broken: str | None = None  # why it stopped early

    def sentence(self, verb: Verb, done_before: int = 0, kept_before: int = 0, since: int = 0) -> str:
        """Return the result for people, in whole sentences."""
        done, kept = self.done + done_before, len(self.conflicts) + kept_before
        jobs = "1 job is" if done == 1 else f"{done:,} jobs are"
        text = f"{jobs} {'queued again' if verb == 'retry' else 'deleted'}."
        if kept:
            text += (
                f" {kept:,} stay{'s' if kept == 1 else ''} here: another job now has "
                f"{'its' if kept == 1 else 'their'} unique key"
            )
            text += f" ({', '.join(self.conflicts[:_NAMED_MAX])}{', …' if kept > _NAMED_MAX else ''})."
        if since:
            text += (
                f" {since:,} more {'has failed since; it is' if since == 1 else 'have failed since; they are'} still "
                "here."
            )
        return (
            text if self.broken is None else f"{text} Then an error occurred: {self.broken}. The others are still here."
        )


async def rounds(ask: Ask, which: Chosen, answer: Callable[[RowlockError], Problem]) -> Outcome:
    """Retry or discard in rounds; an error is raised if nothing was done yet, otherwise it is in `broken`.

    Jobs that failed after the count was shown are left out of every round.
    """
    until = time.monotonic() + ROUNDS_SECONDS
    outcome = Outcome(cursor=which.cursor)
    while True:
        try:
            page = await ask(**which.asked, limit=ROUND, cursor=outcome.cursor, died_before=which.seen_at)
        except RowlockError as error:
            if not outcome.done:
                raise
            return replace(outcome, broken=answer(error).detail)
        done, conflicts = (page.retried, page.conflicts) if isinstance(page, RetriedSchema) else (page.discarded, [])
        outcome = Outcome(outcome.done + done, outcome.conflicts + conflicts, page.next_cursor)
        if outcome.cursor is None or time.monotonic() > until:
            return outcome
