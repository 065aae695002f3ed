"""Random sequences of calls stay within their limits, whenever each arrives; random sequences of locks agree."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from model.bench import Bench
from model.call_model import SOON, CallModel, MadeCall, SubjectModel
from rowlock.ids import uuid7
from rowlock.storage.calls import CallLimit

T = TypeVar("T")
LIMITS = (
    CallLimit("few", 2, 10),
    CallLimit("one", 1, 1),
    CallLimit("long", 2, 100),  # kept in sums of a second
    CallLimit("many", 1_001, 5),
)
SUBJECTS = ("a", "b", "c")
WAITS = [0.0, 0.25, 0.75, 1, 2.5, 9.75, 33, 99, 250]

some_limits = st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3, unique=True)
subjects = st.lists(st.sampled_from(SUBJECTS), max_size=3, unique=True)
holders = st.sampled_from(["ann", "ben"])
marks = st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["1", "2", "3"]), max_size=2)


class CallMachine(RuleBasedStateMachine):
    bench: Bench

    permits = Bundle("permits")

    @initialize()
    def begin(self) -> None:
        self.clock = self.bench.clock
        self.store = self.bench.empty_store()
        self.start = self.clock.now()
        self.model = CallModel()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.bench.run(call)

    @rule(target=permits, limits=some_limits, hold=st.sampled_from([0, 2, 30]), times=st.sampled_from([1, 5]))
    def take(self, limits: list[CallLimit], hold: float, times: int) -> Any:
        return multiple(*filter(None, [self._take(limits, hold) for _ in range(times)]))

    def _take(self, limits: list[CallLimit], hold: float) -> str | None:
        permit, model = uuid7(), self.model
        wait = self.run(self.store.take_call(permit, limits, hold))
        if any(map(model.must_wait, limits)):
            assert wait > 0
        if all(map(model.may_begin, limits)):
            assert wait == 0
        if wait == 0:
            model.calls[permit] = MadeCall(limits, model.now, model.now + hold)
            return permit
        soonest = max(model.soonest(limit, 0.0) for limit in limits)
        latest = max(model.soonest(limit, limit.step_seconds + SOON) for limit in limits)
        assert soonest - SOON <= wait <= latest + SOON
        return None

    @rule(permit=permits, hold=st.sampled_from([2, 30]))
    def take_again(self, permit: str, hold: float) -> None:
        """Its answer was lost."""
        call = self.model.calls.get(permit)
        if call is not None and call.ended_at is None and self._remembered(call):
            assert self.run(self.store.take_call(permit, call.limits, hold)) == 0
            call.held_until = self.model.now + hold

    @rule(permit=permits, made=st.sampled_from([True, True, True, False]))
    def end(self, permit: str, made: bool) -> None:
        call = self.model.calls.get(permit)
        if call is not None and call.ended_at is None and not self._remembered(call):
            return  # it took longer than it can, and whether the store knows of it is the store's choice
        self.run(self.store.end_call(permit, made=made))
        if call is not None and call.ended_at is None:
            if made:
                call.ended_at = self.model.now
            else:
                del self.model.calls[permit]

    @rule()
    def end_all(self) -> None:
        for permit in list(self.model.calls):
            self.end(permit, True)

    @rule(permit=consumes(permits))
    def die(self, permit: str) -> None:
        """Its holder is never heard of again."""

    def _remembered(self, call: MadeCall) -> bool:
        return all(call.held_until + limit.seconds > self.model.now for limit in call.limits)

    @rule(seconds=st.sampled_from(WAITS))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now = (self.clock.now() - self.start).total_seconds()

    @rule(limit=st.sampled_from(LIMITS), last=st.booleans())
    def until_just_before_one_is_free(self, limit: CallLimit, last: bool) -> None:
        """The moment at which a call is most likely to be forgotten too early."""
        free_at = [moment for call in self.model.of(limit) if (moment := call.free_at(limit)) > self.model.now + 0.01]
        if free_at:
            self.time_passes((max(free_at) if last else min(free_at)) - self.model.now - 0.01)
            self.take([limit], 0, 5)

    @rule(limit=st.sampled_from(LIMITS), seconds=st.sampled_from([0.5, 5, 40]))
    def rest(self, limit: CallLimit, seconds: float) -> None:
        self.run(self.store.rest_calls(limit.key, seconds))
        self.model.rests[limit.key] = max(self.model.rests.get(limit.key, 0.0), self.model.now + seconds)

    @rule(limit=st.sampled_from([1, 100]))
    def prune(self, limit: int) -> None:
        self.run(self.store.prune_calls(365, limit))

    # -- what holds after every step -----------------------------------------------------------------

    @invariant()
    def no_window_has_more_than_its_limit(self) -> None:
        for limit in LIMITS:
            assert self.model.most_at_once(limit) <= limit.count

    @invariant()
    def the_budget_is_the_models(self) -> None:
        for budget, limit in zip(self.run(self.store.call_budget([one.key for one in LIMITS])), LIMITS, strict=True):
            most = self.model.in_use(limit, limit.step_seconds + SOON)
            assert self.model.in_use(limit) <= budget.in_use <= most
            assert (budget.rests_until is None) == (self.model.rests.get(limit.key, 0.0) <= self.model.now)


class SubjectMachine(RuleBasedStateMachine):
    bench: Bench

    @initialize()
    def begin(self) -> None:
        self.store = self.bench.empty_store()
        self.now = 0.0
        self.model = SubjectModel()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.bench.run(call)

    @rule(seconds=st.sampled_from([0.5, 1, 19]))
    def time_passes(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.now += seconds

    @rule(keys=subjects, holder=holders, seconds=st.sampled_from([1, 20]))
    def hold(self, keys: list[str], holder: str, seconds: float) -> None:
        found = self.run(self.store.hold_subjects("contact", keys, holder, seconds))
        assert found == self.model.hold(self.now, keys, holder, seconds)

    @rule(told=st.dictionaries(st.sampled_from(SUBJECTS), marks), holder=holders)
    def mark(self, told: dict[str, dict[str, str]], holder: str) -> None:
        assert self.run(self.store.mark_subjects("contact", holder, told)) == self.model.mark(holder, told)

    @rule(keys=subjects, holder=holders)
    def free(self, keys: list[str], holder: str) -> None:
        self.run(self.store.free_subjects("contact", holder, keys))
        self.model.free(holder, keys)


def run_machine(machine: type[CallMachine | SubjectMachine], bench: Bench, **more: int) -> None:
    run_state_machine_as_test(
        type("Machine", (machine,), {"bench": bench}),
        settings=settings(
            **more,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


MACHINES = pytest.mark.parametrize("machine", [CallMachine, SubjectMachine], ids=["calls", "subjects"])


@pytest.mark.timeout(3_600)  # seconds with the quick profile; the deep one and shrinking a failure take minutes
@MACHINES
def test_any_sequence_agrees_with_the_model(bench: Bench, machine: type[CallMachine | SubjectMachine]) -> None:
    run_machine(machine, bench)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@MACHINES
def test_any_long_sequence_agrees_with_the_model(bench: Bench, machine: type[CallMachine | SubjectMachine]) -> None:
    run_machine(machine, bench, max_examples=2_000, stateful_step_count=80)
