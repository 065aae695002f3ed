"""Rowlock: the one place where store, registry, clock and settings are wired."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from rowlock.blocking import Blocking
from rowlock.clock import Clock, StoreClock
from rowlock.errors import JobNotFound, JobNotRetryable, SettingsError
from rowlock.jobs.engine import Engine
from rowlock.jobs.enqueue import Enqueuer, Options
from rowlock.jobs.keeper import Keeper
from rowlock.jobs.policy import Backoff, QueueProfile, Unique
from rowlock.jobs.registry import Registry, checked_name, make_type
from rowlock.jobs.resilient import run_now
from rowlock.jobs.worker import WorkerProcess
from rowlock.observe import logs
from rowlock.observe.redact import Redactor
from rowlock.settings import Settings, load
from rowlock.storage.base import Store
from rowlock.storage.open import open_store
from rowlock.storage.records import (
    CancelResult,
    JobFilter,
    JobRecord,
    Limit,
    Page,
    Receipt,
    Status,
)

P = ParamSpec("P")
R = TypeVar("R")


class Handler(Generic[P, R]):
    """A registered handler: still callable, and able to enqueue itself."""

    def __init__(self, app: Rowlock, name: str, function: Callable[P, R]) -> None:
        self._app = app
        self.name = name
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def enqueue(self, **payload: Any) -> Receipt:
        """Enqueue this job; the keyword arguments are its payload. For options use `app.enqueue`."""
        return await self._app.enqueue(self.name, payload)


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
        self._strict = not allow_unknown_types
        # A store's connections belong to one event loop; the portal of synchronous callers has its own.
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, Engine] = WeakKeyDictionary()

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
        checked_name(name, "limit")
        if ":" in name:
            raise SettingsError(f"limit {name!r}: the name may not contain a colon, which separates it from the part")
        if concurrency is None and rate is None:
            raise SettingsError(f"limit {name!r}: give concurrency=, rate=, or both")
        if (concurrency is not None and concurrency < 1) or (rate is not None and rate < 1) or per_seconds <= 0:
            raise SettingsError(f"limit {name!r}: concurrency and rate must be at least 1, per_seconds more than 0")
        made = self._limits[name] = Limit(name, concurrency, rate, per_seconds)
        return made

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
        engine = self.engine
        await engine.store.check_schema()
        log = logs.get()
        worker = WorkerProcess(engine, queues or engine.queues(), log)
        keeper = Keeper(engine, lambda: [worker.record], worker.note_held, log)
        if drain:
            await keeper.rescue()
        chores = asyncio.create_task(keeper.run())
        chores.add_done_callback(lambda _: worker.stop())
        waiting = asyncio.create_task(stop.wait()) if stop is not None else None
        if waiting is not None:
            waiting.add_done_callback(lambda _: worker.stop())
        try:
            await worker.run(drain=drain)
            if chores.done():
                chores.result()  # a fault of ours
        finally:
            for task in (chores, waiting):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(task for task in (chores, waiting) if task is not None), return_exceptions=True)

    # -- wiring ------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The parts, wired for the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._engines.get(loop)
        if found is None:
            store = open_store(self.settings, self.clock)
            enqueuer = Enqueuer(store, self.registry, self.settings, self._profiles, self._strict)
            found = Engine(
                store, self.settings, self.registry, enqueuer, self._profiles, list(self._limits.values()), self.redact
            )
            self._engines[loop] = found
        return found

    @property
    def store(self) -> Store:
        """The store, for the running event loop."""
        return self.engine.store

    async def close(self) -> None:
        """Let go of the store's connections of the running event loop."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.store.close()

    async def __aenter__(self) -> Rowlock:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


__all__ = ["Handler", "Rowlock"]
