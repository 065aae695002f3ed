"""I19: no file kills or stalls a worker: each gets its result in time and in little memory, and the next is read."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from hostile.bad_files import CSV, GOOD, HEADER, XLSX, BadFile
from hostile.sandboxed import MEMORY_MB, left_over, measured, order_of, read, verdicts
from imports.conftest import (
    MakeOffice,
    clock,
    customers_csv,
    error_of,
    log,
    make_app,
    make_office,
    plain_environment,
    pytest_generate_tests,
    resource,
    rig,
    store,
    tmp_path,
    told,
)
from imports.files import stored_files
from rowlock.errors import FileRefused, StoreUnavailable
from rowlock.imports.load import parent
from rowlock.imports.read import sandbox as sandbox_module
from rowlock.imports.read.plan_request import Found, Order
from rowlock.imports.read.plan_result import judge
from rowlock.imports.read.sandbox import Sandbox
from rowlock.storage.imports import ImportStatus

__all__ = [
    "clock",
    "log",
    "make_app",
    "make_office",
    "plain_environment",
    "pytest_generate_tests",
    "resource",
    "rig",
    "store",
    "tmp_path",
]

BY_NAME = {file.name: file for file in CSV + XLSX}
SHORT = [
    "nul.csv",
    "cell-over-1mb.csv",
    "columns-100k.csv",
    "cells-1m.csv",
    "open-quote.csv",
    "quotes.csv",
    "newlines.csv",
    "wide-rows.csv",
    "newlines.csv.gz",
    "members.csv.gz",
    "changed.csv.gz",
    "workbook.csv",
    "corners.xlsx",
    "bomb-shared.xlsx",
    "members.xlsx",
    "lying.xlsx",
    "locked.xlsx",
    "cut.xlsx",
    "nested.xlsx",
    "cell-over-1mb.xlsx",
    "columns-100k.xlsx",
    "formats.xlsx",
    "digits.xlsx",
    "comment.xlsx",
    "runs.xlsx",
]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([file for file in CSV if file.name in SHORT], id="csv-short"),
        pytest.param([file for file in XLSX if file.name in SHORT], id="xlsx-short"),
        pytest.param(CSV, id="csv-long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
        pytest.param(XLSX, id="xlsx-long", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
async def test_every_bad_file_has_its_verdict_in_time_and_in_little_memory(
    files: list[BadFile], tmp_path: Path
) -> None:
    expected, found = await verdicts(files, tmp_path)
    assert found == expected


async def test_the_attack_notices_when_memory_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def only_look(reading: sandbox_module._Reading) -> None:
        while True:
            reading._child.resident_bytes()
            await asyncio.sleep(0.01)

    path = tmp_path / "echo.xlsx"
    BY_NAME["echo.xlsx"].make(path)
    for guarded in (True, False):
        if not guarded:
            monkeypatch.setattr(sandbox_module._Reading, "_watch", only_look)
        sandbox, scratch = Sandbox(), tmp_path / f"scratch-{guarded}"
        scratch.mkdir()
        with measured() as use, pytest.raises(FileRefused) as refused:
            await read(sandbox, order_of(path, scratch))
        assert refused.value.code == "file_too_large"
        assert (use.memory_mb <= MEMORY_MB) is guarded
        await sandbox.close()


async def test_many_and_long_errors_are_told_in_part_and_counted_in_full(tmp_path: Path) -> None:
    line = "b@x.org," + ",".join(["é" * 200] * 60) + "\n"
    path, scratch = tmp_path / "long.csv", tmp_path / "scratch"
    path.write_text(HEADER + GOOD + line * 2_000, encoding="utf-8")
    scratch.mkdir()
    sandbox = Sandbox()
    found = await read(sandbox, order_of(path, scratch))
    await sandbox.close()
    assert (found.rows, found.bad_rows) == (2_001, 2_000)
    assert sum(len(cell) for bad in found.bad for cell in bad[3]) <= 8 << 20


async def test_a_worker_refuses_bad_files_and_imports_the_good_ones_among_them(make_office: MakeOffice) -> None:
    office = await make_office()
    names = ("bomb.csv.gz", "nul-cells.csv", "laughs.xlsx", "corners.xlsx", "overlapping.xlsx", "half-utf16.csv")
    ids = {}
    for name in names:
        BY_NAME[name].make(office.folder / name)
        ids[name] = await office.add(office.folder / name)
    good = await office.add(customers_csv([("z@x.org", "Zoe", "1")]))
    await office.work()
    for name in names:
        record = await office.app.imports.get(ids[name])
        if BY_NAME[name].code:
            assert (record.status, error_of(record)["code"]) == (ImportStatus.FAILED, BY_NAME[name].code)
        else:
            assert (record.status, record.counts.rows) == (ImportStatus.SUCCEEDED, BY_NAME[name].rows), record.error
    assert told(await office.app.imports.get(good)) == (1, 1, 0, 0, 0, 0)
    assert list((office.folder / "store" / "scratch").iterdir()) == []


async def test_a_reader_that_lies_about_its_rows_fails_its_import(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(line: bytes, order: Order) -> Found:
        found = judge(line, order)
        return replace(found, rows=found.rows + 5, chunks=[replace(found.chunks[0], rows=found.chunks[0].rows + 5)])

    monkeypatch.setattr(sandbox_module, "judge", lie)
    office = await make_office()
    record = await office.run(customers_csv([("a@x.org", "Ann", "1")]))
    assert record.status is ImportStatus.FAILED


async def test_a_disk_that_is_full_while_the_file_is_read_costs_an_attempt_and_nothing_else(
    make_office: MakeOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = await make_office(backoff_base_seconds=0.0)
    made: list[str] = []
    make = parent.tempfile.mkdtemp

    def full_at_first(**given: str) -> str:
        made.append(make(**given))
        if len(made) == 1:
            os.symlink("/dev/full", f"{made[0]}/0.arrow")
        return made[-1]

    monkeypatch.setattr(parent.tempfile, "mkdtemp", full_at_first)
    record = await office.run(customers_csv([("a@x.org", "Ann", "1"), ("b@x.org", "Bob", "1")]))

    assert len(made) == 2
    assert told(record) == (2, 2, 0, 0, 0, 0)
    assert list((office.folder / "store" / "scratch").iterdir()) == []
    assert stored_files(office.folder / "store") == []


async def test_a_full_disk_is_told_as_such_and_not_where_it_is(tmp_path: Path) -> None:
    path, scratch = tmp_path / "a.csv", tmp_path / "scratch"
    path.write_text(HEADER + GOOD)
    scratch.mkdir()
    (scratch / "0.arrow").symlink_to("/dev/full")
    sandbox = Sandbox()
    with measured() as use, pytest.raises(StoreUnavailable, match="No space left") as refused:
        await read(sandbox, order_of(path, scratch))
    assert str(scratch) not in str(refused.value)
    with mock.patch.object(sandbox_module, "_REST_SECONDS", 0.0):
        await sandbox.close()
    assert left_over(use) == []
