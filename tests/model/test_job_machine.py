"""Random sequences of store calls leave a store and the model in the same state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from conformance.builders import ANN, BEN, CAT, EVERYTHING, near, new_job, worker
from model.bench import Bench
from model.job_model import JobModel
from rowlock.errors import DuplicateJob
from rowlock.ids import uuid7
from rowlock.storage.records import (
    Claimed,
    Failed,
    Held,
    JobFilter,
    JobId,
    JobRecord,
    KeepPolicy,
    Limit,
    NewJob,
    OnConflict,
    Outcome,
    Progress,
    Settlement,
    Status,
    UniqueKey,
    WorkerId,
)
from rowlock.storage.reliability import FailureFilter

T = TypeVar("T")
OPERATORS = ["cancel", "cancel", "run_now", "retry", "discard"]
QUEUES = ("mail", "sync")
WORKERS = (ANN, BEN)
STRANGER = CAT
LIMITS = {limit.name: limit for limit in (Limit("api", concurrency=1), Limit("calls", rate=2, per_seconds=40))}
JOBS_MAX = 40  # in one run, so that looking at all of them stays cheap
DAY_SECONDS = 86_400
FAILING = (Outcome.FAILED, Outcome.RETRY, Outcome.CRASH, Outcome.FATAL)

queues = st.sampled_from(QUEUES)
owners = st.sampled_from(WORKERS)
delays = st.sampled_from([0, 0, 0, 10, 45])
limit_keys = st.sampled_from([None, None, None, "api:a", "api:b", "calls", "free"])


class JobMachine(RuleBasedStateMachine):
    bench: Bench
    thorough: bool
    steps = 0

    jobs = Bundle("jobs")
    leases = Bundle("leases")  # those that were lost stay: nothing may come of them

    @initialize(target=jobs, given=st.lists(st.tuples(queues, st.integers(1, 3), limit_keys), min_size=2, max_size=8))
    def begin(self, given: list[tuple[str, int, str | None]]) -> Any:
        self.clock = self.bench.clock
        self.store = self.bench.empty_store()
        self.run(self.store.define_limits(list(LIMITS.values())))
        self.model = JobModel(self.clock.now(), LIMITS)
        self.highest_lease: Counter[JobId] = Counter()
        self.queue_of: dict[JobId, str] = {}
        return self._enqueue([new_job(queue=queue, max_attempts=most, limit_key=key) for queue, most, key in given])

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.bench.run(call)

    # -- producers ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.jobs) < JOBS_MAX)
    @rule(
        target=jobs,
        queue=queues,
        type=st.sampled_from(["send", "read"]),
        priority=st.sampled_from([100, 100, -1]),
        delay=delays,
        max_attempts=st.integers(1, 3),
        visibility_seconds=st.sampled_from([30, 90]),
        limit_key=limit_keys,
        number=st.integers(1, 3),
    )
    def enqueue(
        self,
        queue: str,
        type: str,
        priority: int,
        delay: float,
        max_attempts: int,
        visibility_seconds: int,
        limit_key: str | None,
        number: int,
    ) -> Any:
        batch = [
            new_job(
                queue=queue,
                type=type,
                priority=priority,
                delay_seconds=float(delay),
                max_attempts=max_attempts,
                visibility_ms=visibility_seconds * 1_000,
                limit_key=limit_key,
            )
            for _ in range(number)
        ]
        return self._enqueue(batch)

    def _enqueue(self, batch: list[NewJob]) -> Any:
        self.queue_of |= {job.id: job.queue for job in batch}
        receipts = self.run(self.store.enqueue(batch))
        assert receipts == [self.model.enqueue(job) for job in batch]
        return multiple(*(job.id for job in batch))

    @precondition(lambda self: len(self.model.jobs) < JOBS_MAX)
    @rule(
        target=jobs,
        queue=queues,
        key=st.sampled_from("ab"),
        policy=st.sampled_from(["forever", "window", "while_active"]),
        on_conflict=st.sampled_from(OnConflict),
    )
    def enqueue_unique(self, queue: str, key: str, policy: str, on_conflict: OnConflict) -> Any:
        seconds = 50.0 if policy == "window" else None
        unique = UniqueKey(key, seconds, policy == "while_active", on_conflict)
        job = new_job(queue=queue, unique=unique)
        self.queue_of[job.id] = queue
        expected = self.model.enqueue(job)
        if expected.created or on_conflict is OnConflict.RETURN_EXISTING:
            assert self.run(self.store.enqueue([job])) == [expected]
            return job.id if expected.created else multiple()
        with pytest.raises(DuplicateJob) as refusal:
            self.run(self.store.enqueue([job]))
        assert refusal.value.existing_job_id == expected.job_id
        return multiple()

    # -- workers -----------------------------------------------------------------------------------

    @rule(target=leases, queue=queues, owner=owners, limit=st.sampled_from([1, 2, 3, 8, 0]))
    def claim(self, queue: str, owner: WorkerId, limit: int) -> Any:
        return multiple(*((claimed, owner) for claimed in self._claim(queue, owner, limit)))

    @rule(
        target=leases,
        queue=queues,
        owner=owners,
        outcomes=st.lists(st.sampled_from(Outcome), min_size=1, max_size=3),
        delay=delays,
        cancelled=st.booleans(),
    )
    def work(self, queue: str, owner: WorkerId, outcomes: list[Outcome], delay: float, cancelled: bool) -> Any:
        held = [(claimed, owner) for claimed in self._claim(queue, owner, len(outcomes))]
        if held and cancelled:
            self.operate(held[0][0].id, "cancel")
        self._settle(owner, held, outcomes, delay)
        return multiple(*held)

    def _claim(self, queue: str, owner: WorkerId, limit: int) -> list[Claimed]:
        claims = self.run(self.store.claim(queue, owner, limit))
        taken = self.model.claim(queue, owner, limit)
        assert self.model.agrees(claims, taken), f"{claims} are not {taken}"
        for claimed in claims:
            assert claimed.lease > self.highest_lease[claimed.id]
            assert claimed.attempt <= claimed.max_attempts
            self.highest_lease[claimed.id] = claimed.lease
        return claims

    @rule(
        held=st.lists(leases, min_size=1, max_size=3, unique_by=lambda held: held[0].id),
        outcomes=st.lists(st.sampled_from(Outcome), min_size=3, max_size=3),
        delay=delays,
    )
    def settle(self, held: list[tuple[Claimed, WorkerId]], outcomes: list[Outcome], delay: float) -> None:
        self._settle(held[0][1], held, outcomes, delay)

    @rule(job_id=jobs, outcome=st.sampled_from(Outcome))
    def intrude(self, job_id: JobId, outcome: Outcome) -> None:
        """A worker that is not the owner, or has another lease, changes nothing."""
        job = self.model.jobs.get(job_id)
        owner, lease = (ANN, 1) if job is None else (job.owner or ANN, job.lease)
        for someone, number in ((owner, lease - 1), (owner, lease + 1), (STRANGER, lease)):
            end = Settlement(job_id, number, outcome, failure=Failed(uuid7(), "{}", None))
            assert self.run(self.store.settle(someone, [end])) == [job_id]
            assert self.run(self.store.progress(someone, [Progress(job_id, number, 99, None)])) == [job_id]

    def _settle(
        self, owner: WorkerId, held: list[tuple[Claimed, WorkerId]], outcomes: list[Outcome], delay: float
    ) -> None:
        ends = [
            self._settlement(claimed, self._allowed(claimed, outcome), delay)
            for (claimed, _), outcome in zip(held, outcomes, strict=False)
        ]
        lost = self.run(self.store.settle(owner, ends))
        assert sorted(lost) == sorted(self.model.settle(owner, ends))

    def _settlement(self, claimed: Claimed, outcome: Outcome, delay: float) -> Settlement:
        return Settlement(
            claimed.id,
            claimed.lease,
            outcome,
            seconds=None if outcome is Outcome.RELEASE and delay == 0 else 0.0,  # it did not start
            delay_seconds=float(delay),
            error="no",
            type=claimed.type,
            queue=self.queue_of[claimed.id],
            failure=Failed(uuid7(), claimed.payload, None) if outcome in FAILING else None,
        )

    def _allowed(self, claimed: Claimed, outcome: Outcome) -> Outcome:
        """What an engine would say: it does not ask for another attempt when there is none."""
        spent = claimed.attempt >= claimed.max_attempts
        return Outcome.FAILED if spent and outcome in (Outcome.RETRY, Outcome.CRASH) else outcome

    @rule(held=leases, percent=st.integers(0, 100))
    def report(self, held: tuple[Claimed, WorkerId], percent: int) -> None:
        claimed, owner = held
        reports = [Progress(claimed.id, claimed.lease, percent, None)]
        assert self.run(self.store.progress(owner, reports)) == self.model.progress(owner, reports)

    @rule(beating=st.sets(owners), retired=st.one_of(st.none(), owners))
    def beat(self, beating: set[WorkerId], retired: WorkerId | None) -> None:
        if retired is not None:
            self.run(self.store.retire(retired))
            self.model.seen.pop(retired, None)
        held = self.run(self.store.beat([worker(owner) for owner in beating]))
        self.model.seen |= dict.fromkeys(beating, self.clock.now())
        self._compare_held(held, beating)
        for owner in WORKERS:
            self._compare_held(self.run(self.store.held(owner)), {owner})

    def _compare_held(self, held: list[Held], owners: set[WorkerId]) -> None:
        assert {(one.job_id, one.lease, one.owner, one.cancel_requested) for one in held} == {
            (id, job.lease, job.owner, job.cancel_requested)
            for id, job in self.model.jobs.items()
            if job.owner in owners
        }

    @rule(seconds=st.sampled_from([1, 10, 15, 31, 100]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now = self.clock.now()

    @rule(after=st.sampled_from([0, 31, 100]), alive=st.sets(owners), limit=st.sampled_from([8, 1, 0]), delay=delays)
    def rescue(self, after: float, alive: set[WorkerId], limit: int, delay: float) -> None:
        self.time_passes(after)
        self.beat(alive, None)
        expired = self.model.expired()
        rescued = self.run(self.store.rescue(limit, {QUEUES[0]: float(delay)}, str))
        assert len(rescued) == min(limit, len(expired))
        for one in rescued:
            assert one.job_id in expired
            assert one == self.model.rescue(one.job_id, delay if one.queue == QUEUES[0] else 0)

    # -- operators ---------------------------------------------------------------------------------

    @rule(job_id=st.one_of(jobs, st.builds(uuid7)), verb=st.sampled_from(OPERATORS))
    def operate(self, job_id: JobId, verb: str) -> None:
        where = JobFilter(ids=[job_id])
        dead = job_id in self.model.dead()
        if verb == "cancel":
            assert self.run(self.store.cancel(job_id)) is self.model.cancel(job_id)
        elif verb == "run_now":
            assert self.run(self.store.run_now(job_id)) is self.model.run_now(job_id)
        elif verb == "retry":
            answer = self.run(self.store.retry(where, 10))
            retried = dead and self.model.retry(job_id)
            assert answer.retried == ([job_id] if retried else [])
            assert answer.conflicts == ([job_id] if dead and not retried else [])
        else:
            assert self.run(self.store.discard(where, 10)) == ([job_id] if dead else [])
            if dead:
                self.model.discard(job_id)

    @rule(
        verb=st.sampled_from(["retry", "prune", "pause", "resume", "pause_key", "compact"]),
        status=st.sampled_from(Status),
        queue=queues,
        key=st.sampled_from(["api", "api:a", "calls", "free"]),
        seconds=st.sampled_from([0.5, 30.5, 120.5]),
    )
    def administer(self, verb: str, status: Status, queue: str, key: str, seconds: float) -> None:
        if verb == "retry":
            self._retry_all()
        elif verb == "prune":
            removed = self.run(self.store.prune({status: KeepPolicy(days=seconds / DAY_SECONDS)}, 1_000))
            assert removed.get(status, 0) == self.model.prune(status, seconds)
        elif verb == "pause":
            self.run(self.store.pause(queue))
            self.model.paused.add(queue)
        elif verb == "resume":
            self.run(self.store.resume(queue))
            self.model.paused.discard(queue)
        elif verb == "compact":
            self.run(self.store.compact(3))
        else:
            self.run(self.store.pause_key(key, seconds))
            until = self.clock.now() + timedelta(seconds=seconds)
            self.model.paused_keys[key] = max(until, self.model.paused_keys.get(key, until))

    def _retry_all(self) -> None:
        dead = self.model.dead()
        answer = self.run(self.store.retry(EVERYTHING, 1_000))
        assert sorted([*answer.retried, *answer.conflicts]) == sorted(dead)
        # Which of several jobs with one key comes first is the store's choice; that it is one is not.
        for job_id in answer.retried:
            assert self.model.retry(job_id)
        for job_id in answer.conflicts:
            assert not self.model.retry(job_id)

    # -- what holds after every step -----------------------------------------------------------------

    @invariant()
    def every_record_is_the_models(self) -> None:
        page = self.run(self.store.page(EVERYTHING, 1_000))
        assert {job.id for job in page.jobs} == set(self.model.jobs)
        for job in page.jobs:
            self._compare(job)

    def _compare(self, found: JobRecord) -> None:
        job = self.model.jobs[found.id]
        assert (found.status, found.attempts, found.deaths, found.lease) == (
            job.status,
            job.attempts,
            job.deaths,
            job.lease,
        )
        assert (found.lock_owner, found.cancel_requested) == (job.owner, job.cancel_requested)
        assert found.attempts <= found.max_attempts
        if job.status is Status.PROCESSING:
            assert found.progress == job.progress
        if job.status is Status.QUEUED and job.available_at > self.model.now:
            assert near(found.available_at, job.available_at)
        assert (found.finished_at is None) == (job.finished_at is None)
        assert found.finished_at is None or near(found.finished_at, job.finished_at)

    # Each of these reads costs as much as a step, on MongoDB ten times as much. What they read is state, which stays
    # wrong until something reads it: the short version does one of them after a step, and all at the end.

    @property
    def _sums(self) -> list[Callable[[], None]]:
        return [
            self._counts_are_the_models,
            self._totals_are_the_models,
            self._failures_are_the_models,
            self._queues_are_the_models,
        ]

    @invariant()
    def sums_are_the_models(self) -> None:
        self.steps += 1
        for check in self._sums if self.thorough else [self._sums[self.steps % len(self._sums)]]:
            check()

    def teardown(self) -> None:
        if hasattr(self, "model"):  # begin() has run
            for check in self._sums:
                check()

    def _counts_are_the_models(self) -> None:
        assert self.run(self.store.counts()) == self.model.counts()

    def _totals_are_the_models(self) -> None:
        totals = {(one.queue, one.type): one[2:] for one in self.run(self.store.totals())}
        assert {kind: numbers for kind, numbers in totals.items() if any(numbers)} == self.model.totals()

    def _failures_are_the_models(self) -> None:
        page = self.run(self.store.failures(FailureFilter(), 1_000))
        assert page.next_cursor is None
        found = Counter((f.job_id, f.attempts, f.is_final_attempt, f.resolved_at is not None) for f in page.failures)
        assert found == Counter((f.job_id, f.attempts, f.final, f.resolved) for f in self.model.failures)

    def _queues_are_the_models(self) -> None:
        found = {queue.name: (queue.paused, queue.ready, queue.delayed, queue.processing) for queue in self._queues()}
        expected = {}
        for name in QUEUES:
            mine = [job for job in self.model.jobs.values() if job.new.queue == name]
            waiting = [job for job in mine if job.status is Status.QUEUED]
            ready = sum(job.available_at <= self.model.now for job in waiting)
            processing = sum(job.status is Status.PROCESSING for job in mine)
            paused = name in self.model.paused
            if paused or waiting or processing:
                expected[name] = (paused, ready, len(waiting) - ready, processing)
        assert found == expected

    def _queues(self) -> Any:
        return self.run(self.store.queues())


def run_machine(bench: Bench, *, thorough: bool, **more: int) -> None:
    class Machine(JobMachine):
        pass

    Machine.bench, Machine.thorough = bench, thorough
    run_state_machine_as_test(
        Machine,
        settings=settings(
            **more,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(3_600)  # seconds with the quick profile; the deep one and shrinking a failure take minutes
def test_any_sequence_of_verbs_agrees_with_the_model(bench: Bench) -> None:
    run_machine(bench, thorough=settings.get_current_profile_name() != "quick")


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_any_long_sequence_of_verbs_agrees_with_the_model(bench: Bench) -> None:
    run_machine(bench, thorough=True, max_examples=2_000, stateful_step_count=80)
