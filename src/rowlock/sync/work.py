"""From a job to its calls: what is off is skipped, what belongs together goes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        line = self._line(job.company_id, leased)
        return await work_one(operation, job, fields, line, self._engine().store if leased else None)

    async def many(self, operation: Operation, jobs: list[Job]) -> list[Any]:
        """Do jobs that came together; what became of each."""
        if (end := self._without_a_call(operation, jobs)) is not None:
            return [end] * len(jobs)
        entries: dict[str, Any] = {}
        lines: dict[Line, list[Wish]] = {}
        leased = jobs[0]._context.leased
        for job in jobs:
            try:
                wish = _wish(operation, job)
                line = self._line(job.company_id if self._hub.accounts.several else None, leased)
            except Exception as error:  # of this job alone
                entries[job.id] = error
            else:
                lines.setdefault(line, []).append(wish)
        for line, wishes in lines.items():
            entries |= await Batch(operation, wishes, line, self._engine().store if leased else None).work()
        return [entries[job.id] for job in jobs]

    def _line(self, company_id: str | None, leased: bool) -> Line:
        accounts = self._hub.accounts
        return self._lines.get(accounts.key(company_id), accounts.token(company_id), leased)

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
