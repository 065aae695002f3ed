"""Rowlock: the one place where store, registry, clock and settings are wired."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from rowlock.blocking import Blocking
from rowlock.clock import Clock, StoreClock
from rowlock.errors import JobNotFound, JobNotRetryable, SettingsError
from rowlock.handles import Guard, Handler
from rowlock.imports.importer import IMPORT_JOB, Importer, ImportType
from rowlock.imports.imports import Imports
from rowlock.jobs.engine import Engine
from rowlock.jobs.enqueue import Enqueuer, Options
from rowlock.jobs.guard import GuardRule, Scope
from rowlock.jobs.policy import Backoff, QueueProfile, Unique
from rowlock.jobs.registry import Registry, checked_limit, checked_name, make_type
from rowlock.jobs.resilient import run_now
from rowlock.jobs.schedule import Missed, Schedule
from rowlock.jobs.solo import work_here
from rowlock.notice import declare_notices
from rowlock.observe import logs
from rowlock.observe.redact import Redactor
from rowlock.settings import Settings, load
from rowlock.storage.base import Store
from rowlock.storage.open import open_store
from rowlock.storage.records import CancelResult, JobFilter, JobRecord, Limit, Page, Receipt, Status
from rowlock.storage.reliability import FailureFilter, FailurePage
from rowlock.sync.integration import Integration
from rowlock.sync.integrations import Integrations

P = ParamSpec("P")
R = TypeVar("R")


class Rowlock:
    """An application: its job types, its queues and the store they live in."""

    def __init__(
        self,
        database_url: str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        allow_unknown_types: bool = False,
    ) -> None:
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
        self.imports = Imports(lambda: self.engine)
        self.integrations = Integrations(self)
        # A store's connections belong to one event loop; the portal of synchronous callers has its own.
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = WeakKeyDictionary()
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
        guard: Guard | None = None,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register a handler for jobs of this type.

        The handler's first parameter is the job, the others are the payload's fields. With `batch=N` it takes a list
        of up to N jobs; it returns None, or a list with one result or exception per job.
        """
        if limit is not None and limit not in self._limits:
            raise SettingsError(f"job {name!r}: limit {limit!r} is not declared; call app.limit({limit!r}, ...) first")
        s = self.settings
        queue = checked_name(queue or s.queue, "queue")
        names = sys._getframe(1).f_locals  # a handler inside a function may name types that are local to it

        def register(function: Callable[P, R]) -> Handler[P, R]:
            self.registry.add(
                make_type(
                    name,
                    function,
                    names,
                    batch=batch,
                    queue=queue,
                    priority=priority,
                    retry=retry
                    or Backoff(s.max_attempts, s.backoff_base_seconds, s.backoff_factor, s.backoff_max_seconds),
                    visibility_ms=self._visibility_ms(queue, visibility_seconds),
                    unique=unique,
                    limit=limit,
                    limit_by=limit_by,
                    deadline_seconds=s.deadline_seconds if deadline_seconds is None else deadline_seconds,
                    permanent=permanent,
                    guard=guard and guard.rule,
                )
            )
            return Handler(self, name, function)

        return register

    def queue(self, name: str, **profile: Any) -> QueueProfile:
        """Declare how workers treat a queue; the fields are those of QueueProfile.

        Declare a queue before the jobs on it.
        """
        made = QueueProfile(checked_name(name, "queue"), **profile)
        self._profiles[name] = made
        return made

    def limit(
        self, name: str, *, concurrency: int | None = None, rate: int | None = None, per_seconds: float = 1.0
    ) -> Limit:
        """Declare a limit that jobs share: how many run at once, and how many start in any `per_seconds`."""
        made = self._limits[name] = checked_limit(name, concurrency, rate, per_seconds)
        return made

    def guard(
        self, job_key: str, scope: Scope, *, company_id: str | None = None, payload: Mapping[str, Any] | None = None
    ) -> Guard:
        """A lock on work that must not be done twice: `guard=` of a job type, or `async with` in any code.

        Of a job type, the scope is a text such as "{companyId}:{month|full}", whose fields (with a default after the
        bar) come from the payload, or a function of the payload; a job that is skipped succeeds with
        {"skipped": true, "reason": "already_running" | "already_completed"}. In a block it is the scope itself:

            async with app.guard("nightly", "2026-11", payload=data) as lock:
                if lock.skipped:
                    return
        """
        return Guard(self, GuardRule(checked_name(job_key, "guard"), scope), company_id, payload or {})

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
        """Enqueue a job again and again: at each tick once, however many machines run this application.

        `missed` says what becomes of ticks that are more than `grace_seconds` late: "skip", "run_once" or "catch_up".
        The other options are those of `enqueue`.
        """
        checked_name(name, "schedule")
        if name in self._schedules:
            raise SettingsError(f"schedule {name!r} is declared twice; names must be different")
        if missed not in list(Missed):
            raise SettingsError(f"schedule {name!r}: missed must be {', '.join(Missed)}, not {missed!r}")
        Options(**options).check(f"schedule {name!r}")
        when = (cron, every_seconds, zone)
        made = Schedule(
            name, type_name, *when, payload or {}, Missed(missed), grace_seconds, start_delay_seconds, options
        )
        made.check()
        self._schedules[name] = made
        return made

    def importer(self, name: str, **options: Any) -> Callable[[type[Importer]], type[Importer]]:
        """Declare an import type: `@app.importer("customers", row=Customer, key=["email"], into="customers")`.

        Alone it declares an importer without hooks; as a decorator it gives the class its options, which are the
        attributes of Importer.
        """
        if IMPORT_JOB not in self.registry:
            self.job(IMPORT_JOB, queue=self.settings.import_queue)(self.imports.work)
        return self.imports.declaring(name, options)

    def integration(self, name: str, *, base_url: str, **options: Any) -> Integration:
        """Declare a service that operations write to; the options are those of Integration.

        hub = app.integration("crm", base_url="https://crm.example.com", token=..., limits=[Allow(100, per_seconds=10)])
        """
        return self.integrations.declare(name, {"base_url": base_url, **options})

    @property
    def importers(self) -> Mapping[str, ImportType]:
        """The import types that were declared, by name."""
        return self.imports.types

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        """The schedules that were declared, by name."""
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
        """Record a job and return when it is durable; through `connection`, when that transaction commits.

        Raises UnknownJobType, BadPayload, PayloadTooLarge, QueueFull, or DuplicateJob; then nothing was enqueued.
        """
        options = Options(queue, priority, delay_seconds, at, max_attempts, company_id, unique, limit_key)
        given = {} if payload is None else payload
        engine = self.engine
        if connection is not None and not self.settings.resilient:
            return (await engine.enqueuer.submit_many([(type_name, given)], options, connection))[0]
        (new,) = engine.enqueuer.prepare_many([(type_name, given)], options)
        if self.settings.resilient:
            return await run_now(engine, new, logs.get())
        return await engine.enqueuer.submit(new)

    async def enqueue_many(
        self, jobs: Iterable[tuple[str, dict[str, Any]]], *, connection: Any = None, **options: Any
    ) -> list[Receipt]:
        """Record all these (type, payload) jobs or none, in one transaction; the options apply to each."""
        engine = self.engine
        if self.settings.resilient:
            made = engine.enqueuer.prepare_many(jobs, Options(**options))
            return [await run_now(engine, new, logs.get()) for new in made]
        return await engine.enqueuer.submit_many(jobs, Options(**options), connection)

    def enqueue_on(self, connection: Any, jobs: Iterable[tuple[str, dict[str, Any]]], **options: Any) -> list[Receipt]:
        """Enqueue through a synchronous connection of the caller's, in this thread and in its transaction."""
        if self.settings.resilient:
            return self.blocking.run(self.enqueue_many(jobs, **options))
        store = open_store(self.settings, self.clock)
        enqueuer = Enqueuer(store, self.registry, self.settings, self._profiles, self._strict)
        return store.enqueue_blocking(enqueuer.prepare_many(jobs, Options(**options)), connection)

    # -- operators ---------------------------------------------------------------------------------

    async def get(self, job_id: str) -> JobRecord | None:
        """The whole record of a job, or None."""
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
        """Jobs, newest first."""
        where = JobFilter(status=None if status is None else Status(status), type=type, queue=queue)
        return await self.store.page(where, limit, cursor)

    async def cancel(self, job_id: str) -> CancelResult:
        """Cancel a waiting job, or ask a running one to stop."""
        result = await self.store.cancel(job_id)
        if result is CancelResult.NOT_FOUND:
            raise JobNotFound(f"no job has the id {job_id}")
        return result

    async def retry(self, job_id: str) -> None:
        """Queue a failed or cancelled job again, with fresh attempts."""
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
        """Failed attempts, newest first."""
        return await self.store.failures(FailureFilter(company_id, job_name, job_id, final, unresolved), limit, cursor)

    async def retry_failure(self, failure_id: str) -> str:
        """Queue the job of a failed attempt again, which resolves the failure; returns the job's id."""
        failure = await self.store.failure(failure_id)
        if failure is None:
            raise JobNotFound(f"no failure has the id {failure_id}; retention may have removed it")
        await self.retry(failure.job_id)
        return failure.job_id

    async def pause(self, queue: str) -> None:
        """Nothing is claimed from this queue, by any worker, until it is resumed."""
        await self.store.pause(queue)

    async def resume(self, queue: str) -> None:
        """Let the queue be worked on again."""
        await self.store.resume(queue)

    async def migrate(self) -> list[str]:
        """Bring the store's schema up to date; returns the migrations applied."""
        return await self.store.migrate()

    # -- workers -----------------------------------------------------------------------------------

    async def work(self, *queues: str, drain: bool = False, stop: asyncio.Event | None = None) -> None:
        """Run a worker in this process, heartbeat included, until `stop` is set or, with `drain`, nothing is ready.

        For tests and small applications: `rowlock worker` runs it under a supervisor, which a handler cannot block.
        """
        await work_here(self.engine, queues, drain=drain, stop=stop)

    # -- wiring ------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The parts, wired for the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._engines.get(loop)
        if found is None:
            store = open_store(self.settings, self.clock)
            self._profiles = self.imports.profiles(self.settings) | self.integrations.profiles | self._profiles
            enqueuer = Enqueuer(store, self.registry, self.settings, self._profiles, self._strict)
            found = Engine(
                store,
                self.settings,
                self.registry,
                enqueuer,
                self._profiles,
                list(self._limits.values()),
                self.redact,
                self._schedules,
                chores=self.imports.chores,
                warmers=[*([self.imports.warm] if self.importers else []), *self.integrations.warmers],
                unserved=self.integrations.unserved,
            )
            self._engines[loop] = found
        return found

    @property
    def store(self) -> Store:
        """The store, for the running event loop."""
        return self.engine.store

    async def close(self) -> None:
        """Let go of the store's connections of the running event loop."""
        await self.imports.let_go()
        await self.integrations.let_go()
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.store.close()

    async def __aenter__(self) -> Rowlock:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


__all__ = ["Guard", "Handler", "Rowlock"]
