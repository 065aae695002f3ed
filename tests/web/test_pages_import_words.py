"""The texts of the page of an import: correct sentences, bars that add up, and only possible actions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.dashboard import import_tables as tables
from rowlock.dashboard import import_view as view
from rowlock.dashboard.filters import sentence, titled
from rowlock.dashboard.import_messages import for_people
from rowlock.management.imports import BadRow, ErrorRows
from rowlock.management.schemas.imports import ImportSchema, RowErrorSchema

NOW = datetime(2030, 1, 31, tzinfo=UTC)


def made(status: str = "SUCCEEDED", counts: tuple[int, ...] = (0, 0, 0, 0, 0), **more: Any) -> ImportSchema:
    """An import with these numbers of rows: inserted, updated, unchanged, duplicates, failed."""
    names = ("inserted", "updated", "unchanged", "duplicates", "failed")
    over = status in ("SUCCEEDED", "FAILED", "CANCELLED")
    fields: dict[str, Any] = dict.fromkeys((field.alias for field in ImportSchema.model_fields.values()), None)
    fields |= dict.fromkeys(("id", "jobId", "type", "fileName", "csvPath", "sha256"), "")
    errors = more.pop("errors", [])
    groups = more.pop("errorGroups", [])
    return ImportSchema.model_validate(
        fields
        | {
            "status": status,
            "dryRun": False,
            "progress": 0,
            "sizeBytes": 2_000,
            "completedChunks": 0,
            "createdAt": "2030-01-30T23:59:00.000Z",
            "updatedAt": "2030-01-30T23:59:10.000Z",
            "startedAt": "2030-01-30T23:59:01.000Z",
            "finishedAt": "2030-01-30T23:59:10.000Z" if over else None,
            "metaJson": {},
            "summary": dict(zip(names, counts, strict=True))
            | {"totalRows": sum(counts), "errorCount": counts[-1], "errors": errors, "errorGroups": groups},
        }
        | more
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (made("QUEUED"), "Your file is being imported."),
        (made("RUNNING", dryRun=True), "Your file is being checked."),
        (made(counts=(3, 0, 0, 0, 0)), "All 3 rows were imported."),
        (made(counts=(1, 0, 0, 0, 0)), "The only row was imported."),
        (made(counts=(1_000, 1, 0, 0, 1)), "1,001 rows were imported, 1 was not."),
        (made(counts=(0, 0, 9, 0, 0)), "All 9 rows were already in the table."),
        (made(counts=(0, 0, 9, 0, 3)), "9 rows were already in the table, 3 were not imported."),
        (made(counts=(0, 0, 0, 0, 2)), "No row was imported: all 2 have errors."),
        (made(counts=(0, 0, 0, 0, 1)), "No row was imported: the only one has errors."),
        (
            made(counts=(0, 0, 1, 0, 0), dryRun=True),
            "The only row is already in the table: an import would change nothing.",
        ),
        (made(counts=(2, 0, 0, 0, 0), dryRun=True), "All 2 rows can be imported."),
        (made(counts=(2, 0, 0, 0, 1), dryRun=True), "2 of 3 rows can be imported, 1 has errors."),
        (
            made(counts=(0, 0, 2, 0, 0), dryRun=True),
            "All 2 rows are already in the table: an import would change nothing.",
        ),
        (made(counts=(0, 0, 0, 0, 2), dryRun=True), "No row can be imported: all 2 have errors."),
        (
            made(counts=(2, 0, 0, 0, 1), dryRun=True, resultJson={"wouldFail": True}),
            "Nothing would be imported: 1 of 3 rows has errors.",
        ),
        (
            made("CANCELLED", (2, 0, 0, 0, 0)),
            "This import was cancelled. 2 rows that were loaded before remain in the table.",
        ),
        (made("FAILED", errorJson={"code": "missing_columns", "message": "x"}), "Columns are missing in the file."),
        (made("FAILED", errorJson={"code": "of_tomorrow", "message": "x"}), "The file cannot be imported."),
        (made("FAILED"), "The file cannot be imported."),
    ],
)
def test_the_first_sentence_says_what_became_of_it(found: ImportSchema, words: str) -> None:
    assert view.headline(found)[0] == words


@pytest.mark.parametrize(
    ("found", "states"),
    [
        (made("QUEUED", startedAt=None), "done now later later"),
        (made("RUNNING"), "done now later later"),
        (made("RUNNING", totalChunks=3), "done done now later"),
        (made("SUCCEEDED", totalChunks=3), "done done done done"),
        (made("FAILED"), "done stopped later later"),
        (made("FAILED", totalChunks=3), "done done stopped later"),
        (made("CANCELLED", startedAt=None), "done stopped later later"),
    ],
)
def test_the_phases_show_where_it_is(found: ImportSchema, states: str) -> None:
    assert [step.state for step in view.steps(found)] == states.split()


def test_the_bar_adds_up_to_all_rows() -> None:
    parts = view.parts(made(counts=(5, 4, 3, 2, 6)))
    assert sum(part.count for part in parts) == 20
    assert [round(part.start + part.width) for part in parts] == [25, 45, 60, 70, 100]
    running = view.parts(made("RUNNING", (5, 0, 0, 0, 0), metaJson={"rows": 10}))
    assert running[0].width == 50
    assert all(part.width == 0 for part in view.parts(made()))


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (made("RUNNING"), "cancel"),
        (made("SUCCEEDED", (1, 0, 0, 0, 0)), ""),
        (made("CANCELLED"), "resume"),
        (made("FAILED", errorJson={"code": "job_failed"}), "resume"),
        (made("FAILED", errorJson={"code": "missing_columns"}), ""),
        (made("SUCCEEDED", (1, 0, 0, 0, 1), dryRun=True), "import_now"),
        (made("SUCCEEDED", (0, 0, 0, 0, 1), dryRun=True), ""),
        (made("SUCCEEDED", (1, 0, 0, 0, 1), dryRun=True, resultJson={"wouldFail": True}), ""),
    ],
)
def test_only_what_makes_sense_is_offered(found: ImportSchema, may: str) -> None:
    def offered(kept: bool) -> list[str]:
        actions = view.actions(found, kept)
        return [name for name in ("cancel", "resume", "import_now") if getattr(actions, name)]

    assert offered(kept=True) == may.split()
    assert offered(kept=False) == (["cancel"] if may == "cancel" else [])


def test_groups_have_an_example_or_the_codes_own_words() -> None:
    errors = [{"row": 7, "column": "A", "code": "nan", "value": "NaN", "reason": "not a valid number"}]
    groups = [
        {"column": "A", "code": "nan", "count": 2},
        {"column": None, "code": "too_long", "count": 1},
        {"column": None, "code": "of_an_importer", "count": 1},
    ]
    found = made(errors=errors, errorGroups=groups)
    first, second, third = tables.groups(found)
    assert (first.reason, first.row, first.value) == ("Not a valid number.", 7, "NaN")
    assert (second.reason, second.row) == ("The text is longer than the field allows.", None)
    assert third.reason == "Of an importer."


def test_rows_shorter_than_the_header_and_columns_of_one_name() -> None:
    error = RowErrorSchema(row=2, column="B", code="x", value=None, reason="is bad")
    page = ErrorRows(["A", "B", "B"], [BadRow(2, ["a"], [error, error])], None)
    sheet = tables.sheet(page, every_column=None)
    assert [column.letter for column in sheet.columns] == ["A", "B", "C"]
    assert [cell.text for cell in sheet.rows[0].cells] == ["a", "", ""]
    assert [list(cell.reasons) for cell in sheet.rows[0].cells] == [[], ["is bad"], []]


def test_columns_that_say_nothing_are_not_in_the_sample() -> None:
    sample = [
        {"row": 2, "before": None, "after": {"id": 1, "name": "Ann", "note": None, "company": "acme", "on": True}},
        {
            "row": 3,
            "before": {"id": 2, "name": "Bob", "note": None, "company": "acme", "on": True},
            "after": {"id": 2, "name": "Ben", "note": None, "company": "acme", "on": False},
        },
    ]
    columns = {"id": 0, "name": 1, "note": 2}
    changes = tables.changes(made(resultJson={"sample": sample}, metaJson={"columns": columns}))
    assert list(changes.columns) == ["id", "name", "on"]
    assert [row.new for row in changes.rows] == [True, False]
    assert list(changes.rows[1].cells) == [("2", None), ("Ben", "Bob"), ("no", "yes")]


def test_what_is_missing_is_told_with_what_may_be_meant() -> None:
    error = {"code": "missing_columns", "message": "m", "missing": ["email"], "nearest": {"email": ["Mail"]}, "row": 3}
    failure = view.failure(made("FAILED", errorJson=error | {"found": ["Mail", "Name"]}))
    assert failure is not None
    assert failure.text == "The file has no column for email."
    assert (list(failure.missing), list(failure.found), failure.row) == ([("email", ["Mail"])], ["Mail", "Name"], 3)
    assert view.failure(made()) is None


def test_names_and_messages_read_well() -> None:
    assert [titled(name) for name in ("priceListComponents", "ap", "xact_raw", "Customers")] == [
        "Price list components",
        "AP",
        "Xact raw",
        "Customers",
    ]
    assert sentence("customers.csv is empty") == "customers.csv is empty."
    assert sentence("the file is empty") == "The file is empty."
    assert for_people("unknown_import_type", "m").title == "What kind of data is in this file?"
