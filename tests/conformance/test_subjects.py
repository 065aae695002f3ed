"""Subjects: one holder at a time, and marks that never decrease."""

from __future__ import annotations

import pytest

from rowlock.clock import FakeClock
from rowlock.ids import uuid7s
from rowlock.storage.contract import Store

OLD, MIDDLE, NEW = sorted(uuid7s(3))


async def held(store: Store, holder: str, *keys: str, seconds: float = 60) -> list[str]:
    """Hold these subjects. Returns those that the holder gets."""
    return sorted(await store.hold_subjects("contact", keys, holder, seconds))


async def marks(store: Store, key: str, holder: str = "reader") -> dict[str, str]:
    """Return the marks on a subject that is not held."""
    found = await store.hold_subjects("contact", [key], holder, 60)
    await store.free_subjects("contact", holder, [key])
    return found[key]


async def test_a_subject_has_one_holder(store: Store, other: Store) -> None:
    assert await held(store, "ann", "a", "b") == ["a", "b"]
    assert await held(other, "ben", "b", "c", "a") == ["c"]
    assert await held(store, "ann", "c") == []


async def test_the_holder_may_hold_it_longer(store: Store, clock: FakeClock) -> None:
    assert await held(store, "ann", "a") == ["a"]
    clock.advance(50)
    assert await held(store, "ann", "a") == ["a"]
    clock.advance(50)
    assert await held(store, "ben", "a") == []


async def test_a_hold_ends_with_its_time(store: Store, clock: FakeClock) -> None:
    await held(store, "ann", "a")
    clock.advance(59.9)
    assert await held(store, "ben", "a") == []
    clock.advance(0.1)
    assert await held(store, "ben", "a") == ["a"]
    assert await held(store, "ann", "a") == []


async def test_what_is_let_go_may_be_held_by_another(store: Store) -> None:
    await held(store, "ann", "a", "b")
    await store.free_subjects("contact", "ann", ["a", "never held"])
    assert await held(store, "ben", "a", "b") == ["a"]


async def test_nobody_lets_go_what_another_holds(store: Store, clock: FakeClock) -> None:
    await held(store, "ann", "a")
    await store.free_subjects("contact", "ben", ["a"])
    assert await held(store, "ben", "a") == []
    clock.advance(60)
    assert await held(store, "ben", "a") == ["a"]
    await store.free_subjects("contact", "ann", ["a"])
    assert await held(store, "ann", "a") == []


async def test_kinds_are_apart(store: Store) -> None:
    await held(store, "ann", "a")
    assert await store.hold_subjects("company", ["a"], "ben", 60) == {"a": {}}
    await store.mark_subjects("company", "ben", {"a": {"city": NEW}})
    await store.free_subjects("contact", "ann", ["a"])
    assert await marks(store, "a") == {}


async def test_a_key_asked_for_twice_is_held_once(store: Store) -> None:
    assert await held(store, "ann", "a", "b", "a") == ["a", "b"]


async def test_nothing_asked_for_is_nothing_held(store: Store) -> None:
    assert await store.hold_subjects("contact", [], "ann", 60) == {}
    assert await store.mark_subjects("contact", "ann", {}) == []
    await store.free_subjects("contact", "ann", [])


async def test_marks_are_told_to_the_next_holder_and_the_subject_is_free(store: Store, other: Store) -> None:
    await held(store, "ann", "a", "b")
    assert await store.mark_subjects("contact", "ann", {"a": {"tier": NEW, "city": OLD}, "b": {}}) == ["a", "b"]
    found = await other.hold_subjects("contact", ["a", "b"], "ben", 60)
    assert found == {"a": {"tier": NEW, "city": OLD}, "b": {}}


async def test_the_greater_mark_stays(store: Store) -> None:
    for told in ({"tier": MIDDLE, "city": MIDDLE}, {"tier": OLD, "city": NEW, "phone": OLD}):
        await held(store, "ann", "a")
        assert await store.mark_subjects("contact", "ann", {"a": told}) == ["a"]
    assert await marks(store, "a") == {"tier": MIDDLE, "city": NEW, "phone": OLD}


async def test_marks_compare_by_their_characters(store: Store) -> None:
    for told in ({"p": "B", "q": "a"}, {"p": "a", "q": "B"}, {"p": "A", "q": "é"}):
        await held(store, "ann", "a")
        await store.mark_subjects("contact", "ann", {"a": told})
    assert await marks(store, "a") == {"p": "a", "q": "é"}


async def test_a_holder_that_lost_a_subject_leaves_no_mark(store: Store, clock: FakeClock) -> None:
    await held(store, "ann", "a", "b")
    clock.advance(60)
    assert await held(store, "ben", "a") == ["a"]
    assert await store.mark_subjects("contact", "ann", {"a": {"tier": NEW}, "b": {"tier": NEW}}) == ["b"]
    assert await held(store, "cat", "a") == []
    await store.free_subjects("contact", "ben", ["a"])
    assert await marks(store, "a") == {}
    assert await marks(store, "b") == {"tier": NEW}


async def test_what_was_let_go_or_never_held_is_not_marked(store: Store) -> None:
    await held(store, "ann", "a")
    await store.free_subjects("contact", "ann", ["a"])
    assert await store.mark_subjects("contact", "ann", {"a": {"tier": NEW}, "never held": {"tier": NEW}}) == []
    assert await marks(store, "a") == {}


async def test_a_hold_whose_time_is_over_is_lost_only_to_another(store: Store, clock: FakeClock) -> None:
    await held(store, "ann", "a")
    clock.advance(61)
    assert await store.mark_subjects("contact", "ann", {"a": {"tier": NEW}}) == ["a"]
    assert await marks(store, "a") == {"tier": NEW}


async def test_marks_outlive_holders(store: Store, clock: FakeClock) -> None:
    await held(store, "ann", "a")
    await store.mark_subjects("contact", "ann", {"a": {"tier": NEW}})
    await held(store, "ben", "a")
    clock.advance(61)
    assert await marks(store, "a") == {"tier": NEW}


ODD = ["", " ", "a\0b", "a\\x00b", "a\\u0000b", "\ud800", "?", "é", "e\u0301", "A@b.c", "a@b.c", "k" * 5_000]
ODD += ["k" * 4_999 + "l", "'; DROP TABLE subjects", '"', "{}", "\u202e", "\n", "🏠", "\\sha256 " + "0" * 64]


async def test_any_text_is_a_subject_of_its_own(store: Store) -> None:
    assert list(await store.hold_subjects("contact", ODD, "ann", 60)) != []
    assert await store.hold_subjects("contact", ODD, "ben", 60) == {}
    told = {key: {"place": str(number)} for number, key in enumerate(ODD)}
    assert await store.mark_subjects("contact", "ann", told) == ODD
    assert await store.hold_subjects("contact", ODD, "ben", 60) == told
    await store.free_subjects("contact", "ben", ODD)
    assert set(await store.hold_subjects("contact", ODD, "cat", 60)) == set(ODD)


async def test_any_text_is_a_property_of_its_own(store: Store) -> None:
    told = {property: f"{number:04d}" for number, property in enumerate(ODD)}
    for _ in range(2):
        await held(store, "ann", "a")
        await store.mark_subjects("contact", "ann", {"a": told})
    assert await marks(store, "a") == told


async def test_many_subjects_are_held_and_marked_at_once(store: Store) -> None:
    keys = [f"member{number}@example.com" for number in range(1_000)]
    assert await held(store, "ann", *keys) == sorted(keys)
    assert await store.mark_subjects("contact", "ann", {key: {"tier": NEW} for key in keys}) == keys
    assert await store.hold_subjects("contact", keys, "ben", 60) == {key: {"tier": NEW} for key in keys}


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
async def test_a_time_that_is_none_is_refused(store: Store, seconds: float) -> None:
    with pytest.raises(ValueError):
        await held(store, "ann", "a", seconds=seconds)
    assert await held(store, "ben", "a") == ["a"]


async def test_subjects_that_nobody_touched_for_long_are_pruned(store: Store, clock: FakeClock) -> None:
    for key in ("a", "b", "c"):
        await held(store, "ann", key)
        await store.mark_subjects("contact", "ann", {key: {"tier": NEW}})
    clock.advance(days=20)
    await marks(store, "c")  # counts as a use
    clock.advance(days=20)
    assert await store.prune_calls(50, 10) == 0
    assert await store.prune_calls(30, 1) == 1
    assert await store.prune_calls(30, 10) == 1
    assert await store.prune_calls(30, 10) == 0
    assert [await marks(store, key) for key in ("a", "b", "c")] == [{}, {}, {"tier": NEW}]


async def test_a_subject_that_is_held_is_not_pruned(store: Store, clock: FakeClock) -> None:
    await held(store, "ann", "a", seconds=86_400 * 40)
    clock.advance(days=39)
    assert await store.prune_calls(1, 10) == 0
    assert await store.mark_subjects("contact", "ann", {"a": {"tier": NEW}}) == ["a"]
    clock.advance(days=2)
    assert await store.prune_calls(1, 10) == 1


async def test_a_subject_whose_holder_died_is_pruned(store: Store, clock: FakeClock) -> None:
    await held(store, "ann", "a")
    clock.advance(days=2)
    assert await store.prune_calls(1, 10) == 1
