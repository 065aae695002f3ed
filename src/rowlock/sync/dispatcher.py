"""Run the jobs of an integration: skip operations that are off, run others alone or group them into calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.errors import CallFailed, CallRefused, Snooze
from rowlock.jobs.engine import Engine
from rowlock.jobs.job import Job
from rowlock.jobs.outcome import fails_for_good
from rowlock.observe import logs
from rowlock.sync.batch import Batch, PendingUpdate
from rowlock.sync.client import Client, ServiceLimited
from rowlock.sync.client_pool import ClientPool
from rowlock.sync.job_order import Order
from rowlock.sync.operation import Operation
from rowlock.sync.single import work_one

if TYPE_CHECKING:
    from rowlock.sync.integration import Integration

T = TypeVar("T")

PERMANENT = (CallRefused,)  # in addition to the errors that are permanent for every job
_DISABLED_SECONDS = 60.0


class Dispatcher:
    """Runs the jobs of one integration."""

    def __init__(self, integration: Integration, engine: Callable[[], Engine], clients: ClientPool) -> None:
        self._integration = integration
        self._engine = engine
        self._clients = clients

    async def one(self, operation: Operation, job: Job, fields: dict[str, Any]) -> Any:
        """Run one job and return its result."""
        if (end := self._without_a_call(operation, [job])) is not None:
            if isinstance(end, BaseException):
                raise end
            return end
        leased = job._context.leased
        store = self._engine().store if leased else None
        order = Order(operation, [job], store)
        try:
            if await order.take_over():
                fields = {} if operation.arguments is None else operation.arguments(job._claimed.payload)
            client, token = self._client(job.company_id, leased)
            result = await work_one(operation, job, order.place(job), fields, client, token, store)
        except Exception as error:
            end = self._limited(job, error)
            for again in (await order.end([job.id] if _over(job, end) else [])).values():
                raise again from error
            if end is error:
                raise
            raise end from None
        for again in (await order.end([job.id])).values():
            raise again
        return result

    async def many(self, operation: Operation, jobs: list[Job]) -> list[Any]:
        """Run the jobs of one batch. Returns a result or exception per job, in order."""
        if (end := self._without_a_call(operation, jobs)) is not None:
            return [end] * len(jobs)
        entries: dict[str, Any] = {}
        companies: dict[str | None, list[PendingUpdate]] = {}
        leased, several = jobs[0]._context.leased, self._integration.accounts.several
        store = self._engine().store if leased else None
        order = Order(operation, jobs, store)
        await order.take_over()
        for job in jobs:
            try:
                companies.setdefault(job.company_id if several else None, []).append(
                    _pending_update(operation, job, order.place(job))
                )
            except Exception as error:  # fails this job only
                entries[job.id] = error
        parts = self._by_client(companies, leased, entries)
        # Concurrently: an account that does not answer must not use up the time of the others.
        entries_by_part = await asyncio.gather(
            *(Batch(operation, updates, client, token, store).work() for (client, token), updates in parts.items()),
            return_exceptions=True,
        )
        for updates, found in zip(parts.values(), entries_by_part, strict=True):
            if isinstance(found, Exception):
                entries |= {update.job.id: found for update in updates}
            elif isinstance(found, BaseException):
                raise found
            else:
                entries |= found
        entries = {job.id: self._limited(job, entries[job.id]) for job in jobs}
        entries |= await order.end([job.id for job in jobs if _over(job, entries[job.id])])
        return [entries[job.id] for job in jobs]

    def _limited(self, job: Job, limited: T) -> T | CallFailed:
        """Return how the attempt ends: a rate limit costs no attempt, but becomes CallFailed after too many releases.

        Any other result or error is returned unchanged.
        """
        if not isinstance(limited, ServiceLimited):
            return limited
        rounds = job._claimed.releases
        if rounds < self._engine().settings.sync_limited_rounds:
            return limited
        return CallFailed(f"{limited}; still rate limited after {rounds} releases")

    def _by_client(
        self, companies: Mapping[str | None, list[PendingUpdate]], leased: bool, entries: dict[str, Any]
    ) -> dict[tuple[Client, str | None], list[PendingUpdate]]:
        """Group updates by client and token. If a company has no account or token, its jobs fail."""
        clients: dict[tuple[Client, str | None], list[PendingUpdate]] = {}
        for company_id, updates in companies.items():
            try:
                clients.setdefault(self._client(company_id, leased), []).extend(updates)
            except Exception as error:
                entries |= {update.job.id: error for update in updates}
        return clients

    def _client(self, company_id: str | None, leased: bool) -> tuple[Client, str | None]:
        accounts = self._integration.accounts
        return self._clients.get(accounts.key(company_id), leased), accounts.token(company_id)

    def _without_a_call(self, operation: Operation, jobs: Sequence[Job]) -> Any:
        """Return how the attempt ends if the integration or the operation is off; else None."""
        integration = self._integration
        if integration.disabled is not None:
            return Snooze(_DISABLED_SECONDS, f"{integration.name} is disabled: {integration.disabled}")
        if not operation.enabled:
            reason = f"{operation.name} is switched off"
            logs.get().info("sync.skipped", type=operation.type, jobs=[job.id for job in jobs], reason=reason)
            return {"skipped": True, "reason": reason}
        return None


def _over(job: Job, end: object) -> bool:
    """Whether the job is finished after an attempt that ends with `end`: it succeeded, or failed permanently."""
    return not isinstance(end, BaseException) or fails_for_good(job._claimed, PERMANENT, end)


def _pending_update(operation: Operation, job: Job, place: str) -> PendingUpdate:
    fields = operation.fields(job._claimed.payload)
    subject = operation.subject(fields)
    assert operation.properties is not None
    assert subject is not None
    return PendingUpdate(job, place, subject, dict(operation.properties(**fields)))
