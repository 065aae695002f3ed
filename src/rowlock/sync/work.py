"""From a job to its calls: what is off is skipped, what belongs together goes together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rowlock.errors import Snooze
from rowlock.jobs.engine import Engine
from rowlock.jobs.job import Job
from rowlock.observe import logs
from rowlock.sync.batch import Batch, Wish
from rowlock.sync.line import Line
from rowlock.sync.lines import Lines
from rowlock.sync.operation import Operation
from rowlock.sync.single import work_one

if TYPE_CHECKING:
    from rowlock.sync.integration import Integration

_DISABLED_SECONDS = 60.0


class Work:
    """Does the jobs of one integration."""

    def __init__(self, hub: Integration, engine: Callable[[], Engine], lines: Lines) -> None:
        self._hub = hub
        self._engine = engine
        self._lines = lines

    async def one(self, operation: Operation, job: Job, fields: dict[str, Any]) -> Any:
        """Do one job."""
        if (end := self._without_a_call(operation, [job])) is not None:
            if isinstance(end, BaseException):
                raise end
            return end
        leased = job._context.leased
        line, token = self._line(job.company_id, leased)
        return await work_one(operation, job, fields, line, token, self._engine().store if leased else None)

    async def many(self, operation: Operation, jobs: list[Job]) -> list[Any]:
        """Do jobs that came together; what became of each."""
        if (end := self._without_a_call(operation, jobs)) is not None:
            return [end] * len(jobs)
        entries: dict[str, Any] = {}
        companies: dict[str | None, list[Wish]] = {}
        leased, several = jobs[0]._context.leased, self._hub.accounts.several
        for job in jobs:
            try:
                companies.setdefault(job.company_id if several else None, []).append(_wish(operation, job))
            except Exception as error:  # of this job alone
                entries[job.id] = error
        store = self._engine().store if leased else None
        parts = self._by_line(companies, leased, entries)
        # At once: an account that does not answer must not use up the time of the others.
        told = await asyncio.gather(
            *(Batch(operation, wishes, line, token, store).work() for (line, token), wishes in parts.items()),
            return_exceptions=True,
        )
        for wishes, ends in zip(parts.values(), told, strict=True):
            if isinstance(ends, Exception):
                entries |= {wish.job.id: ends for wish in wishes}
            elif isinstance(ends, BaseException):
                raise ends
            else:
                entries |= ends
        return [entries[job.id] for job in jobs]

    def _by_line(
        self, companies: Mapping[str | None, list[Wish]], leased: bool, entries: dict[str, Any]
    ) -> dict[tuple[Line, str | None], list[Wish]]:
        """What goes to one account, with one token, goes together; where a company has none, its jobs fail."""
        lines: dict[tuple[Line, str | None], list[Wish]] = {}
        for company_id, wishes in companies.items():
            try:
                lines.setdefault(self._line(company_id, leased), []).extend(wishes)
            except Exception as error:
                entries |= {wish.job.id: error for wish in wishes}
        return lines

    def _line(self, company_id: str | None, leased: bool) -> tuple[Line, str | None]:
        accounts = self._hub.accounts
        return self._lines.get(accounts.key(company_id), leased), accounts.token(company_id)

    def _without_a_call(self, operation: Operation, jobs: Sequence[Job]) -> Any:
        """How the attempt ends where the integration or the operation is off; else None."""
        hub = self._hub
        if hub.disabled is not None:
            return Snooze(_DISABLED_SECONDS, f"{hub.name} is disabled: {hub.disabled}")
        if not operation.enabled:
            reason = f"{operation.name} is switched off"
            logs.get().info("sync.skipped", type=operation.type, jobs=[job.id for job in jobs], reason=reason)
            return {"skipped": True, "reason": reason}
        return None


def _wish(operation: Operation, job: Job) -> Wish:
    fields = operation.fields(job._claimed.payload)
    subject = operation.subject(fields)
    assert operation.properties is not None
    assert subject is not None
    return Wish(job, subject, dict(operation.properties(**fields)))
