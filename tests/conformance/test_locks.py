"""Locks: one holder begins work that must not be done twice, and only the current holder ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from rowlock.clock import FakeClock
from rowlock.control import locks
from rowlock.storage.contract import Store
from rowlock.storage.reliability import LockAnswer, LockDecision, LockKey, LockRecord

KEY = LockKey("acme", "monthly_report", "acme:2030-01-01_2030-01-31")
STALE_SECONDS = 30 * 60
ASKERS = 20
State = Callable[[Store, FakeClock], Awaitable[None]]


async def ask(store: Store, holder: str = "ann", data: str = "data", key: LockKey = KEY) -> LockAnswer:
    return await locks.take(store, key, data, holder, STALE_SECONDS)


async def held(store: Store, key: LockKey = KEY) -> LockRecord | None:
    found = [
        one for one in await locks.listed(store, key.job_key, key.company_id, 100) if one.scope_key == key.scope_key
    ]
    assert len(found) <= 1
    return found[0] if found else None


async def no_row(store: Store, clock: FakeClock) -> None:
    """There is no lock record."""


async def running_recent(store: Store, clock: FakeClock) -> None:
    await ask(store)
    clock.advance(STALE_SECONDS - 1)


async def running_stale(store: Store, clock: FakeClock) -> None:
    await ask(store)
    clock.advance(STALE_SECONDS + 1)


async def completed(store: Store, clock: FakeClock) -> None:
    assert await locks.end(store, KEY, (await ask(store)).token, completed=True)
    clock.advance(days=1)


async def failed(store: Store, clock: FakeClock) -> None:
    assert await locks.end(store, KEY, (await ask(store)).token, completed=False)
    clock.advance(1)


SAME, OTHER = "data", "other data"
TABLE: list[tuple[State, str, LockDecision]] = [
    (no_row, SAME, LockDecision.PROCEED),
    (running_recent, SAME, LockDecision.ALREADY_RUNNING),
    (running_recent, OTHER, LockDecision.ALREADY_RUNNING),
    (running_stale, SAME, LockDecision.TAKE_OVER),
    (running_stale, OTHER, LockDecision.TAKE_OVER),
    (completed, SAME, LockDecision.ALREADY_COMPLETED),
    (completed, OTHER, LockDecision.RERUN),
    (failed, SAME, LockDecision.RETRY),
    (failed, OTHER, LockDecision.RETRY),
]
FREE = [row for row in TABLE if row[2].go]


def named(rows: Sequence[tuple[State, str, LockDecision]]) -> list[str]:
    return [f"{state.__name__}-{data}-{decision}" for state, data, decision in rows]


@pytest.mark.parametrize(("state", "data", "decision"), TABLE, ids=named(TABLE))
async def test_the_state_of_a_lock_decides(
    store: Store, clock: FakeClock, state: State, data: str, decision: LockDecision
) -> None:
    await state(store, clock)
    before = await held(store)
    answer = await ask(store, "ben", data)
    assert answer.decision is decision
    assert answer.holder == (None if before is None else "ann")
    if decision.go:
        token = answer.token if before is None else before.token + 1
        assert answer.token == token > 0
        fields = (KEY.company_id, KEY.job_key, KEY.scope_key)
        assert await held(store) == LockRecord(*fields, "running", data, token, "ben", clock.now(), None)
    else:
        assert before is not None
        assert answer.token == before.token
        assert await held(store) == before


@pytest.mark.parametrize(("state", "data", "decision"), FREE, ids=named(FREE))
async def test_of_twenty_who_ask_at_once_one_proceeds(
    store: Store, other: Store, clock: FakeClock, state: State, data: str, decision: LockDecision
) -> None:
    await state(store, clock)
    answers = await asyncio.gather(*(ask((store, other)[n % 2], f"asker {n}", data) for n in range(ASKERS)))
    (winner,) = [n for n, answer in enumerate(answers) if answer.decision.go]
    assert answers[winner].decision is decision
    assert {answer.decision for n, answer in enumerate(answers) if n != winner} == {LockDecision.ALREADY_RUNNING}
    found = await held(store)
    assert found is not None
    assert (found.holder, found.token) == (f"asker {winner}", answers[winner].token)
    assert {answer.token for answer in answers} == {found.token}


async def test_a_stale_lock_is_taken_over_by_one_of_many_again_and_again(
    store: Store, other: Store, clock: FakeClock
) -> None:
    for number in range(40):  # often enough that two would meet between check and take
        clock.advance(STALE_SECONDS + 1)
        answers = await asyncio.gather(*(ask((store, other)[n % 2], f"asker {number}.{n}") for n in range(8)))
        assert sum(answer.decision.go for answer in answers) == 1


async def test_a_lock_is_not_stale_a_moment_too_early(store: Store, clock: FakeClock) -> None:
    await ask(store)
    clock.advance(STALE_SECONDS - 0.001)
    assert (await ask(store, "ben")).decision is LockDecision.ALREADY_RUNNING
    clock.advance(0.002)
    assert (await ask(store, "ben")).decision is LockDecision.TAKE_OVER


async def test_a_lock_that_was_taken_over_is_as_fresh_as_its_new_holder(store: Store, clock: FakeClock) -> None:
    await running_stale(store, clock)
    await ask(store, "ben")
    clock.advance(STALE_SECONDS - 1)
    assert (await ask(store, "cat")).decision is LockDecision.ALREADY_RUNNING


async def test_a_renewed_lock_is_as_fresh_as_its_renewal(store: Store, clock: FakeClock) -> None:
    taken = await ask(store)
    clock.advance(STALE_SECONDS - 1)
    assert await locks.renew(store, KEY, taken.token)
    clock.advance(STALE_SECONDS - 1)
    assert (await ask(store, "ben")).decision is LockDecision.ALREADY_RUNNING
    clock.advance(2)
    assert (await ask(store, "ben")).decision is LockDecision.TAKE_OVER


async def test_a_lock_that_was_taken_over_or_has_ended_is_not_renewed(store: Store, clock: FakeClock) -> None:
    late = await ask(store)
    clock.advance(STALE_SECONDS + 1)
    taken = await ask(store, "ben")
    assert not await locks.renew(store, KEY, late.token)
    assert await locks.end(store, KEY, taken.token, completed=True)
    assert not await locks.renew(store, KEY, taken.token)


async def test_who_is_refused_does_not_keep_a_lock_fresh(store: Store, clock: FakeClock) -> None:
    await running_recent(store, clock)
    assert (await ask(store, "ben")).decision is LockDecision.ALREADY_RUNNING
    clock.advance(2)
    assert (await ask(store, "ben")).decision is LockDecision.TAKE_OVER


async def test_a_holder_takes_its_own_running_lock_over_at_once(store: Store, clock: FakeClock) -> None:
    first = await ask(store)
    clock.advance(1)
    again = await ask(store, "ann", OTHER)
    assert again == LockAnswer(LockDecision.TAKE_OVER, first.token + 1, "ann")
    found = await held(store)
    assert found is not None
    assert (found.payload_hash, found.locked_at) == (OTHER, clock.now())
    assert not await locks.end(store, KEY, first.token, completed=True)
    assert await locks.end(store, KEY, again.token, completed=True)


async def test_a_holder_does_not_do_its_own_completed_work_again(store: Store, clock: FakeClock) -> None:
    await completed(store, clock)
    assert (await ask(store, "ann", SAME)).decision is LockDecision.ALREADY_COMPLETED


async def test_the_token_grows_whenever_the_lock_is_taken(store: Store, clock: FakeClock) -> None:
    tokens = [(await ask(store)).token]
    clock.advance(STALE_SECONDS + 1)
    tokens.append((await ask(store, "ben")).token)
    await locks.end(store, KEY, tokens[-1], completed=False)
    tokens.append((await ask(store, "cat")).token)
    await locks.end(store, KEY, tokens[-1], completed=True)
    tokens.append((await ask(store, "ann", OTHER)).token)
    assert tokens == [tokens[0] + n for n in range(4)]


async def test_the_late_holder_of_a_lock_that_was_removed_ends_nobody_elses(store: Store, clock: FakeClock) -> None:
    """Its token is lower than all later ones, even after the lock was removed."""
    late = (await ask(store)).token
    await locks.end(store, KEY, late, completed=True)
    clock.advance(days=2)
    assert await locks.prune(store, 1, 10) == 1
    assert (await ask(store, "ben")).token > late
    assert not await locks.end(store, KEY, late, completed=True)


@pytest.mark.parametrize("done", [True, False])
async def test_a_holder_marks_how_its_work_ended(store: Store, clock: FakeClock, done: bool) -> None:
    answer = await ask(store)
    before = await held(store)
    assert before is not None
    clock.advance(60)
    assert await locks.end(store, KEY, answer.token, completed=done)
    status = "completed" if done else "failed"
    assert await held(store) == replace(before, status=status, ended_at=clock.now())


@pytest.mark.parametrize("done", [True, False])
async def test_a_late_holder_cannot_end_a_lock_that_was_taken_over(store: Store, clock: FakeClock, done: bool) -> None:
    late = await ask(store)
    clock.advance(STALE_SECONDS + 1)
    new = await ask(store, "ben")
    before = await held(store)
    assert not await locks.end(store, KEY, late.token, completed=done)
    assert await held(store) == before
    assert await locks.end(store, KEY, new.token, completed=True)
    ended = await held(store)
    assert not await locks.end(store, KEY, late.token, completed=done)
    assert await held(store) == ended


async def test_a_lock_ends_once(store: Store, other: Store) -> None:
    token = (await ask(store)).token
    ended = await asyncio.gather(*(locks.end((store, other)[n % 2], KEY, token, completed=n < 2) for n in range(4)))
    assert sum(ended) == 1
    before = await held(store)
    assert not await locks.end(store, KEY, token, completed=False)
    assert await held(store) == before


async def test_a_lock_that_nobody_took_cannot_be_ended(store: Store) -> None:
    assert not await locks.end(store, KEY, 1, completed=True)
    await ask(store)
    for token in (0, 2, -1):
        assert not await locks.end(store, KEY, token, completed=True)
    assert await held(store) is not None


@pytest.mark.parametrize("change", [{"company_id": ""}, {"job_key": "batch_recalc"}, {"scope_key": "acme:full"}])
async def test_every_part_of_its_key_makes_another_lock(store: Store, change: dict[str, str]) -> None:
    key = replace(KEY, **change)
    token = (await ask(store)).token
    await locks.end(store, KEY, token, completed=True)
    other = await ask(store, key=key)
    assert other.decision is LockDecision.PROCEED
    assert await locks.end(store, key, other.token, completed=False)
    found = await held(store)
    assert found is not None
    assert found.status == "completed"


async def test_locks_are_listed_the_last_taken_first(store: Store, clock: FakeClock) -> None:
    for number in range(4):
        await ask(store, key=replace(KEY, scope_key=str(number)))
        clock.advance(1)
    await ask(store, key=replace(KEY, scope_key="0"))
    assert [one.scope_key for one in await locks.listed(store, None, None, 10)] == ["0", "3", "2", "1"]
    assert [one.scope_key for one in await locks.listed(store, None, None, 2)] == ["0", "3"]


async def test_locks_are_found_by_what_they_are_for(store: Store, clock: FakeClock) -> None:
    for company in ("acme", "", "other"):
        for work in ("report", "recalc"):
            await ask(store, key=LockKey(company, work, "full"))
            clock.advance(1)

    async def listed(job_key: str | None, company_id: str | None) -> list[tuple[str, str]]:
        return [(one.company_id, one.job_key) for one in await locks.listed(store, job_key, company_id, 10)]

    assert await listed("report", None) == [("other", "report"), ("", "report"), ("acme", "report")]
    assert await listed(None, "acme") == [("acme", "recalc"), ("acme", "report")]
    assert await listed("recalc", "") == [("", "recalc")]
    assert await listed("recalc", "nobody") == []


async def test_locks_that_ended_long_ago_are_pruned(store: Store, clock: FakeClock) -> None:
    for number in range(4):
        key = replace(KEY, scope_key=str(number))
        await locks.end(store, key, (await ask(store, key=key)).token, completed=number % 2 == 0)
        clock.advance(days=1)
    assert await locks.prune(store, 2.5, 100) == 2
    assert {one.scope_key for one in await locks.listed(store, None, None, 10)} == {"2", "3"}
    assert (await ask(store, key=replace(KEY, scope_key="0"))).decision is LockDecision.PROCEED


async def test_a_running_lock_is_never_pruned(store: Store, clock: FakeClock) -> None:
    await completed(store, clock)
    await ask(store, "ben", OTHER)  # ended once, runs again
    await ask(store, key=replace(KEY, scope_key="other"))
    before = await locks.listed(store, None, None, 10)
    clock.advance(days=1_000)
    assert await locks.prune(store, 0, 100) == 0
    assert len(before) == 2
    assert await locks.listed(store, None, None, 10) == before


async def test_locks_are_pruned_oldest_first_and_no_more_than_asked(store: Store, clock: FakeClock) -> None:
    for number in range(5):
        key = replace(KEY, scope_key=str(number))
        await locks.end(store, key, (await ask(store, key=key)).token, completed=True)
        clock.advance(60)
    clock.advance(days=30)
    assert await locks.prune(store, 14, 2) == 2
    assert [one.scope_key for one in await locks.listed(store, None, None, 10)] == ["4", "3", "2"]
    assert [await locks.prune(store, 14, 2) for _ in range(3)] == [2, 1, 0]


async def test_age_is_counted_from_the_end_of_the_work(store: Store, clock: FakeClock) -> None:
    token = (await ask(store)).token
    clock.advance(days=10)
    await locks.end(store, KEY, token, completed=True)
    clock.advance(days=1)
    assert await locks.prune(store, 5, 10) == 0
