"""The supervisor starts worker processes, renews their leases, and cleans up after dead ones. It runs no handler.

supervisor ──┬── worker process 1   (handlers; may hang, crash, hold the GIL)
   │         └── worker process 2
   └─ heartbeat for all, rescue, retention, deadlines
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from rowlock.errors import RowlockError, StoreError, ValueRefused
from rowlock.ids import uuid7
from rowlock.jobs.engine import Engine
from rowlock.jobs.outcome import after_death, after_error, deadline_error, without_refused
from rowlock.jobs.policy import default_backoff
from rowlock.jobs.registry import JobType
from rowlock.jobs.worker.consumer import slots_per_runner
from rowlock.jobs.worker.failure_watch import FailureWatch
from rowlock.jobs.worker.maintenance import Maintenance
from rowlock.jobs.worker.start_request import StartRequest, boot
from rowlock.jobs.worker.started_jobs import Slots, Started, allocate
from rowlock.settings import Settings
from rowlock.storage.records import Claimed, Failed, Held, JobRecord, Outcome, Settlement, Worker, WorkerId

_WATCH_SECONDS = 0.1
_RESTART_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0)  # the wait before a new process, by consecutive deaths before any work
_SPARE_SECONDS = 2.0  # after a start, before a spare process is started
_LATE_SECONDS = 0.9  # beyond the grace period, before a worker that does not stop is killed
_AGAIN_SECONDS = 0.2
_UNDELIVERED_MAX = 2  # one may be lost to a process that is just ending
_UNREAD_BYTES_MAX = 4 * 1_048_576  # for a process that stands still: then it gets no more heartbeats
_IMPATIENT_SECONDS = 1.0  # a second signal within this time is the same one, sent to process and group


@dataclass(slots=True)
class Spawned:
    """A process that has loaded Rowlock, no application yet, and waits for its start request."""

    process: asyncio.subprocess.Process
    descriptor: int


@dataclass(slots=True)
class Child:
    """One worker process."""

    record: Worker
    process: asyncio.subprocess.Process
    slots: Slots
    descriptor: int
    undelivered: int = 0  # heartbeats in a row that its control channel did not take
    condemned: set[str] = field(default_factory=set)  # jobs past their deadline, settled before the kill


class Supervisor:
    """Starts and supervises N worker processes."""

    def __init__(
        self,
        engine: Engine,
        app_name: str,
        queues: Sequence[str],
        log: Any,
        *,
        processes: int,
        drain: bool = False,
        concurrency: int | None = None,
    ) -> None:
        self._engine = engine
        self._app_name = app_name
        self._queues = tuple(queues)
        self._log = log
        self._processes = processes
        self._drain = drain
        self._concurrency = concurrency
        self._children: dict[str, Child] = {}
        self._stopping = asyncio.Event()
        self._asked = 0.0
        self._spare: Spawned | None = None
        self._warming: asyncio.Task[None] | None = None
        self.failed = False

    def stop(self) -> None:
        """Stop gracefully; a second call more than 1 s later kills the workers at once."""
        if self._stopping.is_set() and time.monotonic() > self._asked + _IMPATIENT_SECONDS:
            for child in self._children.values():
                _signal(child.process, signal.SIGKILL)
        if not self._stopping.is_set():
            self._asked = time.monotonic()
            self._stopping.set()

    async def run(self) -> None:
        """Supervise until stopped or, when draining, until every worker has drained."""
        maintenance = Maintenance(self._engine, self._workers, self._pass_on, self._running, self._log)
        if self._drain:
            await maintenance.rescue()
        chores = [asyncio.create_task(maintenance.run()), asyncio.create_task(self._watch())]
        places = [asyncio.create_task(self._keep_running(place)) for place in range(self._processes)]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            together = asyncio.create_task(_all(places))
            await asyncio.wait([together, stopping, *chores], return_when=asyncio.FIRST_COMPLETED)
            for chore in chores:
                if chore.done():
                    chore.result()
            if self._stopping.is_set():
                await self._stop_children(together)
            await together
        finally:
            tasks: list[asyncio.Task[Any]] = [*chores, *places, stopping]
            if self._warming is not None:
                tasks.append(self._warming)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._spare is not None:
                _signal(self._spare.process, signal.SIGKILL)
                await self._spare.process.wait()
                os.close(self._spare.descriptor)

    def _running(self) -> list[WorkerId]:
        """The workers that run a job now."""
        return [owner for owner, child in self._children.items() if next(child.slots.started(), None)]

    async def _stop_children(self, together: asyncio.Task[None]) -> None:
        for child in self._children.values():
            _signal(child.process, signal.SIGTERM)
        _, late = await asyncio.wait([together], timeout=self._engine.settings.grace_seconds + _LATE_SECONDS)
        if late:
            for child in self._children.values():
                self._log.warning(
                    "worker.killed", worker=child.record.id, reason="the worker did not stop within the grace period"
                )
                _signal(child.process, signal.SIGKILL)

    # -- one worker process ------------------------------------------------------------------------

    async def _keep_running(self, place: int) -> None:
        """Keep one worker process running: after a death, settle its jobs and start another."""
        deaths = 0
        while not self._stopping.is_set():
            child = await self._start()
            code = await child.process.wait()
            del self._children[child.record.id]
            worked = await self._clean_up(child, code)
            os.close(child.descriptor)
            if self._stopping.is_set() or (self._drain and code == 0):
                return
            deaths = 0 if worked else deaths + 1
            if self._drain and deaths >= len(_RESTART_SECONDS):
                self.failed = True
                self._log.error("worker.gave_up", place=place, reason="its processes keep dying")
                return
            delay = _RESTART_SECONDS[min(deaths, len(_RESTART_SECONDS) - 1)]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    async def _spawn(self) -> Spawned:
        engine = self._engine
        count = slots_per_runner(engine.types) * sum(
            self._concurrency or engine.concurrency(queue) for queue in self._queues
        )
        descriptor = allocate(count)
        process = await asyncio.create_subprocess_exec(
            *boot(engine.settings.database_url, descriptor), stdin=asyncio.subprocess.PIPE, pass_fds=(descriptor,)
        )
        return Spawned(process, descriptor)

    async def _warm_up(self) -> None:
        """Start a spare process, so that a dead one is replaced in milliseconds."""
        await asyncio.sleep(_SPARE_SECONDS)
        if self._spare is None:
            self._spare = await self._spawn()

    async def _start(self) -> Child:
        spare, self._spare = self._spare, None
        if spare is not None and spare.process.returncode is not None:
            os.close(spare.descriptor)
            spare = None
        spawned = spare or await self._spawn()
        if not self._drain and (self._warming is None or self._warming.done()):
            self._warming = asyncio.create_task(self._warm_up())
        process, descriptor, worker_id = spawned.process, spawned.descriptor, uuid7()
        record = Worker(worker_id, f"{os.uname().nodename}:{process.pid}", self._queues)
        child = Child(record, process, Slots.shared(descriptor), descriptor)
        self._children[worker_id] = child
        request = StartRequest(
            app=self._app_name,
            database_url=self._engine.settings.database_url,
            worker_id=worker_id,
            queues=list(self._queues),
            drain=self._drain,
            concurrency=self._concurrency,
            path=sys.path,
        )
        assert process.stdin is not None
        process.stdin.write(request.line())
        self._log.info("worker.started", worker=worker_id, pid=process.pid, queues=list(self._queues))
        return child

    async def _clean_up(self, child: Child, code: int) -> bool:
        """Settle the jobs that a process held when it ended, as `after_death` decides.

        Returns False if it ended with an error and held nothing: perhaps it cannot even start.
        """
        reason = _how(code)
        if code == 0 or (self._stopping.is_set() and code == -signal.SIGTERM):
            self._log.info("worker.stopped", worker=child.record.id, pid=child.process.pid)
        else:
            self._log.error("worker.died", worker=child.record.id, pid=child.process.pid, reason=reason)
        started = {(job.job_id, job.lease): job.started for job in child.slots.started()}
        # Killed by the supervisor, for one job's deadline or because it did not stop: the others are not to blame.
        blameless = bool(child.condemned) or self._stopping.is_set()
        while True:
            try:
                held = await self._engine.store.held(child.record.id)
                now = time.monotonic()
                ran = {} if blameless else {attempt: now - began for attempt, began in started.items()}
                settlements = after_death(held, ran, self._engine.settings.deaths_max, reason)
                settlements = [await self._with_failure(settlement) for settlement in settlements]
                await self._settle(child, settlements)
                await self._engine.store.retire(child.record.id)
                break
            except StoreError as error:
                self._log.warning("worker.cleanup_delayed", worker=child.record.id, reason=str(error))
                if self._stopping.is_set():
                    return True  # the leases expire by themselves
                await asyncio.sleep(_AGAIN_SECONDS)
        for lease, settlement in zip(held, settlements, strict=True):
            event = "job.released" if settlement.outcome == Outcome.RELEASE else "job.crashed"
            level = self._log.error if settlement.outcome == Outcome.FATAL else self._log.warning
            level(event, job=lease.job_id, attempt=lease.attempt, reason=settlement.error or reason)
        if held:
            for queue in self._queues:
                await self._wake(queue)
        if any(settlement.outcome == Outcome.FATAL for settlement in settlements):
            await self._look_at_failures()
        return code == 0 or bool(held) or bool(child.condemned)

    async def _settle(self, child: Child, settlements: list[Settlement]) -> None:
        """Settle for a worker that is gone; a value that the store refuses must not keep its job leased."""
        try:
            await self._engine.store.settle(child.record.id, settlements)
        except ValueRefused:
            for end in settlements:
                await self._settle_alone(child, end)

    async def _settle_alone(self, child: Child, end: Settlement) -> None:
        """Settle one job, leaving out the values that the store refuses."""
        shorter: Settlement | None = end
        while shorter is not None:
            end = shorter
            try:
                await self._engine.store.settle(child.record.id, [end])
                return
            except ValueRefused as error:
                self._log.error("settle.refused", job=end.job_id, reason=str(error))
                shorter = without_refused(end)

    async def _with_failure(self, settlement: Settlement) -> Settlement:
        """Add a failure record to the settlement of an attempt that failed with the death of its process."""
        if settlement.outcome not in (Outcome.CRASH, Outcome.FATAL):
            return settlement
        record = await self._engine.store.get(settlement.job_id)
        if record is None:
            return settlement
        return settlement._replace(failure=Failed(uuid7(), self._engine.redact.payload(record.payload), None))

    async def _look_at_failures(self) -> None:
        try:
            await FailureWatch(self._engine, self._log).check()
        except RowlockError as error:
            self._log.warning("watch.delayed", reason=str(error))

    async def _wake(self, queue: str) -> None:
        try:
            await self._engine.store.wake(queue)
        except StoreError:
            return  # a hint; polling finds the jobs

    # -- all worker processes ----------------------------------------------------------------------

    def _workers(self) -> list[Worker]:
        return [child.record for child in self._children.values()]

    def _pass_on(self, held: list[Held], asked_at: float) -> None:
        for child in self._children.values():
            channel = child.process.stdin
            if channel is None or channel.is_closing():
                self._replace_unreachable(child)
            elif channel.transport.get_write_buffer_size() < _UNREAD_BYTES_MAX:
                mine = [list(lease) for lease in held if lease.owner == child.record.id]
                channel.write(orjson.dumps({"held": mine, "asked_at": asked_at}) + b"\n")

    def _replace_unreachable(self, child: Child) -> None:
        """Replace a worker that has closed its control channel, since it does not learn of lost leases."""
        child.undelivered += 1
        if child.undelivered == _UNDELIVERED_MAX and child.process.returncode is None:
            self._log.error(
                "worker.out_of_reach", worker=child.record.id, reason="a handler closed its control channel"
            )
            _signal(child.process, signal.SIGTERM)
            grace_seconds = self._engine.settings.grace_seconds + _LATE_SECONDS
            asyncio.get_running_loop().call_later(grace_seconds, _signal, child.process, signal.SIGKILL)

    async def _watch(self) -> None:
        """Kill processes with a job that has not stopped `kill_seconds` after its deadline."""
        kill_after = self._engine.settings.kill_seconds
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            for child in list(self._children.values()):
                late = [j for j in child.slots.started() if j.deadline and now > j.deadline + kill_after]
                late = [job for job in late if job.job_id not in child.condemned]
                if late:
                    await self._condemn(child, late)

    async def _condemn(self, child: Child, late: list[Started]) -> None:
        """Settle jobs past their deadline as failed attempts, and kill their process, which does not stop them."""
        try:
            held = {lease.job_id: lease for lease in await self._engine.store.held(child.record.id)}
            for job in late:
                lease = held.get(job.job_id)
                if lease is None or lease.lease != job.lease:
                    continue
                record = await self._engine.store.get(job.job_id)
                if record is None:
                    continue
                seconds = (job.deadline or job.started) - job.started
                claimed = Claimed(
                    job.job_id,
                    job.lease,
                    lease.attempt,
                    lease.max_attempts,
                    lease.deaths,
                    record.priority,
                    record.type,
                    record.payload,
                    None,
                    None,
                    None,
                )
                settlement = after_error(
                    claimed,
                    record.queue,
                    self._engine.registry.get(record.type) or _unknown(record, self._engine.settings),
                    deadline_error(seconds),
                    time.monotonic() - job.started,
                    self._engine.redact,
                    datetime.now(UTC),
                )
                assert settlement is not None
                await self._settle(child, [settlement])
                self._log.error("job.deadline", job=job.job_id, type=record.type, reason=settlement.error)
        except RowlockError as error:
            self._log.warning("deadline.delayed", worker=child.record.id, reason=str(error))
            return
        child.condemned.update(job.job_id for job in late)
        self._log.error("worker.killed", worker=child.record.id, reason="a job exceeded its deadline and did not stop")
        _signal(child.process, signal.SIGKILL)


async def _all(places: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*places)


def _unknown(record: JobRecord, settings: Settings) -> JobType:
    """Return the defaults for a type that this process does not know: only its workers load the application again."""
    retry = default_backoff(settings)
    return JobType(record.type, lambda: None, False, None, record.queue, record.priority, retry, settings.visibility_ms)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _how(code: int) -> str:
    """Describe how a process ended."""
    if code < 0:
        return f"the worker process was killed by {signal.Signals(-code).name}"
    return f"the worker process exited with code {code}"
