"""Ids: UUIDv7 strings in the order of their creation."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from rowlock import ids

ONE = "383da4b0-f90d-498f-99f1-0ec014979c0b"


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_it() -> None:
    before = time.time_ns() // 1_000_000
    made = ids.uuid7()
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert before - 1 <= parsed.int >> 80 <= time.time_ns() // 1_000_000 + 1_000


def test_later_ids_sort_after_earlier_ones_singly_and_in_bulk() -> None:
    made = [ids.uuid7() for _ in range(1_000)] + ids.uuid7s(10_000) + [ids.uuid7()] + ids.uuid7s(0) + ids.uuid7s(3)
    assert made == sorted(made)
    assert len(set(made)) == len(made) == 11_004
    assert all(uuid.UUID(one).version == 7 for one in made)


def test_a_clock_that_goes_back_does_not_bring_back_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ids.uuid7()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000)
    assert ids.uuid7() > first


def test_threads_never_get_the_same_id() -> None:
    made: list[str] = []

    def make() -> None:
        mine = [one for _ in range(200) for one in (ids.uuid7(), *ids.uuid7s(5))]
        assert mine == sorted(mine)
        made.extend(mine)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8 * 200 * 6


@pytest.mark.parametrize("text", [ids.uuid7(), str(uuid.uuid4()), str(uuid.uuid4()).upper()], ids=["7", "4", "upper"])
def test_a_uuid_is_known_as_one(text: str) -> None:
    assert ids.is_uuid(text)


@pytest.mark.parametrize(
    "text",
    ["", "x", "0" * 36, "g" * 8 + "-0000-0000-0000-" + "0" * 12, ONE[:-1], ONE + "0",
     ONE.replace("-", ""), "{" + ONE + "}", "00000000-0000-0000-0000-00000000000²",
     "0x000000-0000-0000-0000-000000000000", "+0000000-0000-0000-0000-000000000000",
     "0_000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-00000000000-"],
)  # fmt: skip
def test_anything_else_is_not(text: str) -> None:
    assert not ids.is_uuid(text)
