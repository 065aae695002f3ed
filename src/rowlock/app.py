"""The application object, which wires store, registry, clock and settings together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from rowlock.blocking import Blocking
from rowlock.clock import Clock, StoreClock
from rowlock.errors import JobNotFound, JobNotRetryable, SettingsError
from rowlock.handles import Handler, IdempotencyLock
from rowlock.imports.importer import IMPORT_JOB, Importer, ImportType
from rowlock.imports.imports import Imports
from rowlock.jobs.engine import Engine
from rowlock.jobs.engines import Engines
from rowlock.jobs.enqueue import Enqueuer, Producer
from rowlock.jobs.locks import LockRule, Scope
from rowlock.jobs.new_jobs import JobBuilder, Options
from rowlock.jobs.policy import Backoff, QueueProfile, Unique, default_backoff
from rowlock.jobs.registry import Registry, checked_limit, checked_name, make_type
from rowlock.jobs.resilient import InProcess
from rowlock.jobs.schedule import Missed, Schedule
from rowlock.notification_job import declare_notices
from rowlock.observe.redaction import Redactor
from rowlock.settings import Settings, load
from rowlock.storage.contract import Store
from rowlock.storage.open import open_store
from rowlock.storage.records import CancelResult, JobFilter, JobRecord, Limit, Page, Receipt, Status
from rowlock.storage.reliability import FailureFilter, FailurePage
from rowlock.sync.integration import Integration
from rowlock.sync.integrations import Integrations

P = ParamSpec("P")
R = TypeVar("R")


class Rowlock:
    """An application: job types, queues, schedules, importers and integrations on one store."""

    def __init__(
        self,
        database_url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        allow_unknown_types: bool = False,
        unique: Unique | None = None,
    ) -> None:
        """Create an application; `database_url` overrides the one of `settings` (default: the environment).

        `unique` is the policy of jobs whose call and type name none, except scheduled jobs (default: QUEUE_UNIQUE).
        `allow_unknown_types` lets it enqueue jobs of types without a registered handler.
        """
        self.settings = settings or load()
        if database_url is not None:
            self.settings = self.settings.model_copy(update={"database_url": database_url})
        self.clock: Clock = clock or StoreClock()
        self.registry = Registry()
        self.redact = Redactor(self.settings.redact_keys.split(","))
        self.blocking = Blocking(self)
        self._profiles: dict[str, QueueProfile] = {}
        self._limits: dict[str, Limit] = {}
        self._schedules: dict[str, Schedule] = {}
        self._strict = not allow_unknown_types
        self._unique = unique
        self.imports = Imports(lambda: self.engine)
        self.integrations = Integrations(self)
        self._engines = Engines(self._make_engine, self._close_parts)
        if self.settings.notifies:
            declare_notices(self)

    # -- declarations ------------------------------------------------------------------------------

    def job(
        self,
        name: str,
        *,
        queue: str | None = None,
        priority: int = 100,
        retry: Backoff | None = None,
        unique: Unique | None = None,
        limit: str | None = None,
        limit_by: str | None = None,
        deadline_seconds: float | None = None,
        visibility_seconds: float | None = None,
        batch: int | None = None,
        permanent: tuple[type[BaseException], ...] = (),
        lock: IdempotencyLock | None = None,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register the decorated function as the handler of this job type.

        The handler's first parameter is the job, the others are the payload's fields. With `batch=N` it takes a list
        of up to N jobs and returns None or a list with one result or exception per job. Raises SettingsError for an
        invalid declaration.
        """
        if limit is not None and limit not in self._limits:
            raise SettingsError(f"job {name!r}: limit {limit!r} is not declared; call app.limit({limit!r}, ...) first")
        settings = self.settings
        queue = checked_name(queue or settings.queue, "queue")
        names = sys._getframe(1).f_locals  # annotations of a handler defined in a function may name its local types

        def register(function: Callable[P, R]) -> Handler[P, R]:
            self.registry.add(
                make_type(
                    name,
                    function,
                    names,
                    batch=batch,
                    queue=queue,
                    priority=priority,
                    retry=retry or default_backoff(settings),
                    visibility_ms=self._visibility_ms(queue, visibility_seconds),
                    unique=unique,
                    limit=limit,
                    limit_by=limit_by,
                    deadline_seconds=settings.deadline_seconds if deadline_seconds is None else deadline_seconds,
                    permanent=permanent,
                    lock=lock and lock.rule,
                )
            )
            return Handler(self, name, function)

        return register

    def alias(self, old_name: str, name: str) -> None:
        """Run jobs of type `old_name` with the handler of `name`, which must be registered already.

        Use it to rename a job type: jobs enqueued under the old name still run, including those that processes of the
        previous release enqueue. Default unique keys use the oldest name, so a job is a duplicate under any of its
        names. Declare several old names oldest first.
        """
        self.registry.alias(old_name, name)

    def queue(self, name: str, **profile: Any) -> QueueProfile:
        """Declare how workers treat a queue; the options are the fields of QueueProfile.

        Declare a queue before the jobs on it.
        """
        made = QueueProfile(checked_name(name, "queue"), **profile)
        self._profiles[name] = made
        return made

    def limit(
        self, name: str, *, concurrency: int | None = None, rate: int | None = None, per_seconds: float = 1.0
    ) -> Limit:
        """Declare a limit that jobs share: `concurrency` jobs run at once, `rate` jobs start in any `per_seconds`."""
        made = self._limits[name] = checked_limit(name, concurrency, rate, per_seconds)
        return made

    def lock(
        self, job_key: str, scope: Scope, *, company_id: str | None = None, payload: Mapping[str, Any] | None = None
    ) -> IdempotencyLock:
        """Return an idempotency lock: pass it as `lock=` of a job type, or enter it with `async with` in any code.

        The scope is a text such as "{companyId}:{month|full}", whose fields (with a default after the bar) come from
        the payload, or a function of the payload. A job that is skipped succeeds with
        {"skipped": true, "reason": "already_running" | "already_completed"}. In a block:

            async with app.lock("nightly", "2026-11", payload=data) as lock:
                if lock.skipped:
                    return
        """
        return IdempotencyLock(self, LockRule(checked_name(job_key, "lock"), scope), company_id, payload or {})

    def schedule(
        self,
        name: str,
        type_name: str,
        payload: dict[str, Any] | None = None,
        *,
        cron: str | None = None,
        every_seconds: float | None = None,
        zone: str = "UTC",
        missed: Missed | str = Missed.RUN_ONCE,
        grace_seconds: float = 60.0,
        start_delay_seconds: float = 0.0,
        **options: Any,
    ) -> Schedule:
        """Enqueue a job at each tick of a cron line or interval, once per tick on any number of machines.

        Give either `cron`, in the time zone `zone`, or `every_seconds`. `missed` says what happens to ticks more than
        `grace_seconds` late: "skip", "run_once" or "catch_up". The other options are those of `enqueue`. Raises
        SettingsError for an invalid schedule.
        """
        checked_name(name, "schedule")
        if name in self._schedules:
            raise SettingsError(f"schedule {name!r} is declared twice; names must be different")
        if missed not in list(Missed):
            raise SettingsError(f"schedule {name!r}: missed must be {', '.join(Missed)}, not {missed!r}")
        given = Options(**options, origin="schedule")
        given.check(f"schedule {name!r}")
        when = (cron, every_seconds, zone)
        made = Schedule(
            name, type_name, *when, payload or {}, Missed(missed), grace_seconds, start_delay_seconds, given
        )
        made.check()
        self._schedules[name] = made
        return made

    def importer(self, name: str, **options: Any) -> Callable[[type[Importer]], type[Importer]]:
        """Declare an import type: `@app.importer("customers", row=Customer, key=["email"], into="customers")`.

        The options are the attributes of Importer. A plain call with `row` and `into` declares an importer without
        hooks; as a decorator, the call applies the options to the class.
        """
        if IMPORT_JOB not in self.registry:
            self.job(IMPORT_JOB, queue=self.settings.import_queue, unique=Unique.none())(self.imports.work)
        return self.imports.declaring(name, options)

    def integration(self, name: str, *, base_url: str, **options: Any) -> Integration:
        """Declare a service that operations write to; the options are those of Integration.

        hub = app.integration("crm", base_url="https://crm.example.com", token=..., limits=[RateLimit(100)])
        """
        return self.integrations.declare(name, {"base_url": base_url, **options})

    @property
    def importers(self) -> Mapping[str, ImportType]:
        """The declared import types, by name."""
        return self.imports.types

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """The declared schedules, by name."""
        return self._schedules

    def _visibility_ms(self, queue: str, seconds: float | None) -> int:
        profile = self._profiles.get(queue)
        if seconds is None and profile is not None:
            seconds = profile.visibility_seconds
        return self.settings.visibility_ms if seconds is None else int(seconds * 1000)

    # -- producers ---------------------------------------------------------------------------------

    async def enqueue(
        self,
        type_name: str,
        payload: dict[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        company_id: str | None = None,
        unique: Unique | None = None,
        limit_key: str | None = None,
        connection: Any = None,
    ) -> Receipt:
        """Enqueue a job and return its receipt once the job is durable.

        With `connection`, the job is written in the caller's transaction and exists when that commits. Raises
        UnknownJobType, BadPayload, PayloadTooLarge, QueueFull or DuplicateJob; nothing is enqueued then.
        """
        options = Options(queue, priority, delay_seconds, at, max_attempts, company_id, unique, limit_key)
        given = {} if payload is None else payload
        enqueued = await self.engine.producer.enqueue(type_name, given, options, connection=connection)
        if enqueued.error is not None:
            raise enqueued.error
        return enqueued.receipt

    async def enqueue_many(
        self, jobs: Iterable[tuple[str, dict[str, Any]]], *, connection: Any = None, **options: Any
    ) -> list[Receipt]:
        """Enqueue all of these (type, payload) jobs or none, in one transaction; the options apply to each.

        Returns one receipt per job. In resilient mode the jobs run one after another, until one fails.
        """
        return await self.engine.producer.enqueue_many(jobs, Options(**options), connection)

    def enqueue_on(self, connection: Any, jobs: Iterable[tuple[str, dict[str, Any]]], **options: Any) -> list[Receipt]:
        """Enqueue through the caller's synchronous connection, in the calling thread and in its transaction."""
        producer = self._producer(self._enqueuer(open_store(self.settings, self.clock), self._builder()))
        return producer.enqueue_blocking(jobs, Options(**options), connection)

    # -- operators ---------------------------------------------------------------------------------

    async def get(self, job_id: str) -> JobRecord | None:
        """Return the whole record of a job, or None if no job has this id."""
        return await self.store.get(job_id)

    async def jobs(
        self,
        *,
        status: Status | str | None = None,
        type: str | None = None,
        queue: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of jobs, newest first. Raises ValueError for an unknown cursor."""
        where = JobFilter(status=None if status is None else Status(status), type=type, queue=queue)
        return await self.store.page(where, limit, cursor)

    async def cancel(self, job_id: str) -> CancelResult:
        """Cancel a waiting job, or ask a running one to stop; returns which. Raises JobNotFound."""
        result = await self.store.cancel(job_id)
        if result is CancelResult.NOT_FOUND:
            raise JobNotFound(f"no job has the id {job_id}")
        return result

    async def retry(self, job_id: str, *, scoped: bool = False) -> None:
        """Queue a failed or cancelled job again, with fresh attempts, and resume the import that failed with it.

        With `scoped`, the import is resumed only if that cannot change rows of other companies. Raises JobNotFound, or
        JobNotRetryable if the job has another status or another job holds its unique key.
        """
        await self.imports.resume_of([job_id], scoped=scoped)
        done = await self.store.retry(JobFilter(ids=[job_id]), 1)
        if done.conflicts:
            raise JobNotRetryable(f"job {job_id}: another job holds its unique key now; it stays as it is")
        if not done.retried:
            record = await self.store.get(job_id)
            if record is None:
                raise JobNotFound(f"no job has the id {job_id}")
            raise JobNotRetryable(f"job {job_id} is {record.status}; only failed and cancelled jobs can be retried")

    async def failures(
        self,
        *,
        company_id: str | None = None,
        job_name: str | None = None,
        job_id: str | None = None,
        final: bool | None = None,
        unresolved: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> FailurePage:
        """Return a page of failed attempts, newest first. Raises ValueError for an unknown cursor."""
        return await self.store.failures(FailureFilter(company_id, job_name, job_id, final, unresolved), limit, cursor)

    async def retry_failure(self, failure_id: str) -> str:
        """Queue the job of a failed attempt again, which resolves the failure; returns the job's id.

        Raises JobNotFound or JobNotRetryable.
        """
        failure = await self.store.failure(failure_id)
        if failure is None:
            raise JobNotFound(f"no failure has the id {failure_id}; retention may have removed it")
        await self.retry(failure.job_id)
        return failure.job_id

    async def pause(self, queue: str) -> None:
        """Stop all workers from claiming jobs of this queue, until it is resumed."""
        await self.store.pause(queue)

    async def resume(self, queue: str) -> None:
        """Let workers claim jobs of this queue again."""
        await self.store.resume(queue)

    async def migrate(self) -> list[str]:
        """Update the store's schema; returns the migrations applied."""
        return await self.store.migrate(views=self.settings.document_views)

    # -- workers -----------------------------------------------------------------------------------

    async def work(self, *queues: str, drain: bool = False, stop: asyncio.Event | None = None) -> None:
        """Run a worker in this process, heartbeat included, until `stop` is set or, with `drain`, nothing is ready.

        Without names, it serves all queues. For tests and small applications: `rowlock worker` adds a supervisor, which
        a handler cannot block.
        """
        from rowlock.jobs.worker.inline import work_here

        await work_here(self.engine, queues, drain=drain, stop=stop)

    # -- wiring ------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine of the running event loop, created on first use."""
        return self._engines.here()

    def _make_engine(self) -> Engine:
        store = open_store(self.settings, self.clock)
        self._profiles = self.imports.profiles(self.settings) | self.integrations.profiles | self._profiles
        builder = self._builder()
        enqueuer = self._enqueuer(store, builder)
        return Engine(
            store,
            self.settings,
            self.registry,
            builder,
            enqueuer,
            self._producer(enqueuer),
            self._profiles,
            list(self._limits.values()),
            self.redact,
            self._schedules,
            chores=self.imports.chores,
            warmers=[*([self.imports.warm] if self.importers else []), *self.integrations.warmers],
            starters=self.integrations.starters,
            unserved=self.integrations.unserved,
        )

    def _builder(self) -> JobBuilder:
        unique = self._unique or Unique.parse(self.settings.unique)
        return JobBuilder(self.registry, self.settings, self._strict, unique)

    def _enqueuer(self, store: Store, builder: JobBuilder) -> Enqueuer:
        return Enqueuer(store, builder, self.settings, self._profiles)

    def _producer(self, enqueuer: Enqueuer) -> Producer:
        """Choose between the queue and resilient mode, for every call of the application that enqueues."""
        if self.settings.resilient:
            return InProcess(lambda: self.engine, self.clock, self.blocking.run)
        return enqueuer

    @property
    def store(self) -> Store:
        """The store of the running event loop."""
        return self.engine.store

    async def close(self) -> None:
        """Close the store connections of the running event loop; asyncio.run() also does so when the loop ends."""
        await self._engines.close()

    async def _close_parts(self) -> None:
        await self.imports.let_go()
        await self.integrations.let_go()

    async def __aenter__(self) -> Rowlock:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


__all__ = ["Handler", "IdempotencyLock", "Rowlock"]
