"""Files whose rows refer to each other are imported with any number of chunks; only invalid rows are refused."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, Field

from imports.conftest import MakeOffice, Office, error_of, told
from rowlock.storage.imports import ImportStatus

pytestmark = pytest.mark.relational  # MongoDB has no rules between documents

CHUNK_BYTES = 3_000


class Node(BaseModel):
    k: int
    parent: int | None = None
    n: int = Field(default=1)


async def trees(make_office: MakeOffice, rule: str = "", **options: Any) -> Office:
    office = await make_office(
        lambda app: app.importer("tree", row=Node, key=["k"], into="tree", **options), import_chunk_bytes=CHUNK_BYTES
    )
    await office.execute("DROP TABLE IF EXISTS tree")
    await office.execute(
        f"CREATE TABLE tree (k INTEGER PRIMARY KEY, parent INTEGER REFERENCES tree (k) {rule},"
        " n INTEGER NOT NULL CHECK (n > 0))"
    )
    return office


def file(rows: list[tuple[int, int | None, int]]) -> str:
    return "k,parent,n\n" + "".join(f"{k},{'' if parent is None else parent},{n}\n" for k, parent, n in rows)


def chain(count: int) -> list[tuple[int, int | None, int]]:
    keys = list(range(1, count + 1))
    random.Random(count).shuffle(keys)
    return [(key, parent, 1) for key, parent in sorted(zip(keys, [None, *keys], strict=False))]


async def table(office: Office) -> list[tuple[Any, ...]]:
    return sorted(await office.table("k", "parent", "n", of="tree"))


@pytest.mark.parametrize("rule", ["", "DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
async def test_every_row_of_a_chain_over_many_chunks_is_loaded(make_office: MakeOffice, rule: str) -> None:
    office = await trees(make_office, rule)
    record = await office.run(file(chain(2_000)), type="tree")

    assert record.status is ImportStatus.SUCCEEDED, record.error
    assert (record.total_chunks or 0) >= 8
    assert told(record) == (2_000, 2_000, 0, 0, 0, 0)
    assert await table(office) == chain(2_000)


async def test_what_still_refers_to_nothing_is_reported_with_its_cells(make_office: MakeOffice) -> None:
    office = await trees(make_office)
    bad = [(1_001, 5_000, 1), (1_002, 1_001, 1), (1_003, None, 0)]
    record = await office.run(file([*chain(1_000), *bad]), type="tree")

    assert told(record) == (1_003, 1_000, 0, 0, 0, 3)
    found = {row.row: row for row in await office.errors(record.id)}
    assert {row: error.errors[0].code for row, error in found.items()} == {
        1_002: "foreign_key",
        1_003: "foreign_key",
        1_004: "check",
    }
    assert list(found[1_002].cells) == ["1001", "5000", "1"]
    assert await table(office) == chain(1_000)


async def test_a_dry_run_tells_what_the_import_would_do(make_office: MakeOffice) -> None:
    office = await trees(make_office)
    text = file([*chain(1_000), (1_001, 5_000, 1)])
    tried = await office.run(text, type="tree", dry_run=True)

    assert told(tried) == (1_001, 1_000, 0, 0, 0, 1)
    assert [row.row for row in await office.errors(tried.id)] == [1_002]
    result = orjson.loads(tried.result or "{}")
    assert len(result["sample"]) == 20
    assert await table(office) == []
    assert told(await office.run(text, type="tree")) == (1_001, 1_000, 0, 0, 0, 1)


async def test_all_or_nothing_takes_a_chain_and_names_the_row_to_blame(make_office: MakeOffice) -> None:
    office = await trees(make_office, policy="all_or_nothing")
    failed = await office.run(file([*chain(1_000), (1_001, 5_000, 1)]), type="tree")

    assert error_of(failed)["code"] == "not_all_rows_valid"
    assert [row.row for row in await office.errors(failed.id)] == [1_002]
    assert await table(office) == []
    dry = await office.run(file(chain(1_000)), type="tree", dry_run=True)
    assert orjson.loads(dry.result or "{}")["wouldFail"] is False
    assert told(await office.run(file(chain(1_000)), type="tree")) == (1_000, 1_000, 0, 0, 0, 0)


async def test_rows_that_refer_to_nothing_count_for_errors_max(make_office: MakeOffice) -> None:
    office = await trees(make_office, errors_max=2)
    bad = [(1_000 + n, 5_000, 1) for n in range(1, 4)]
    record = await office.run(file([*chain(1_000), *bad]), type="tree")

    error = error_of(record)
    assert error["code"] == "too_many_errors"
    assert [one["row"] for one in error["errors"]] == [1_002, 1_003, 1_004]


async def test_an_update_may_refer_to_a_row_of_another_chunk(make_office: MakeOffice) -> None:
    office = await trees(make_office)
    first = [(key, None, 1) for key in range(1, 1_001)]
    await office.run(file(first), type="tree")
    second = [(key, key + 1_000, 1) for key in range(1, 1_001)] + [(key, None, 1) for key in range(1_001, 2_001)]
    record = await office.run(file(second), type="tree")

    assert told(record) == (2_000, 1_000, 1_000, 0, 0, 0)
    assert await table(office) == second


async def test_replace_takes_a_chain(make_office: MakeOffice) -> None:
    office = await trees(make_office, mode="replace")
    await office.run(file(chain(600)), type="tree")
    record = await office.run(file(chain(1_000)), type="tree")

    assert told(record) == (1_000, 1_000, 0, 0, 0, 0)
    assert await table(office) == chain(1_000)
