"""`backoffice demo files`: what it writes is what truth.json says, and nobody else's file is lost."""

from __future__ import annotations

import csv
import io
import json
import re
import tracemalloc
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import typer.main

from backoffice.command import app, main
from backoffice.samples import rows
from backoffice.samples.good import XLSX_ROWS_MAX, good_files
from backoffice.samples.workbook import Formula, Sheet, write_workbook
from rowlock.imports.intake import manifest
from rowlock.settings import Settings

TYPES = ("customers", "ap", "budgetForecast", "priceList", "priceListComponents", "xactRaw", "xactComponents")
GOOD = {
    "Customers.csv": ("customers", rows.CUSTOMERS, ("E-mail Address",)),
    "Accounts-Payable.xlsx": ("ap", rows.PAYABLES, ("Invoice Number",)),
    "Budget-Forecast.xlsx": ("budgetForecast", rows.BUDGETS, ("Year", "Category", "Department")),
    "Price-List.csv": ("priceList", rows.ITEMS, ("Cat", "Sel")),
    "Price-List-Components.csv": ("priceListComponents", rows.COMPONENTS, ("Cat", "Sel", "Component Code")),
    "Xact-Raw.csv": ("xactRaw", rows.LINES, ("#",)),
    "Xact-Components.csv": ("xactComponents", rows.PARTS, ("Cat", "Sel", "Component Code")),
}


class Demo:
    """Runs the command in this process."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder / "samples"
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["demo", "files", str(self.folder), *arguments])
        out, self.err = self._capsys.readouterr()
        assert ended.value.code == code, out + self.err
        return out

    @property
    def truth(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "truth.json").read_text(encoding="utf-8"))
        return found

    def bytes(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def table(self, name: str) -> list[list[Any]]:
        """The rows of a file from its header on, read by somebody else's reader."""
        path = self.folder / name
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                return list(csv.reader(file))
        book = openpyxl.load_workbook(path)
        sheet = book["AP Data" if "Payable" in name else "Budget"]
        found = [list(row) for row in sheet.iter_rows(values_only=True)]
        return found[2:] if "Budget" in name else found


@pytest.fixture
def demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Demo:
    return Demo(tmp_path, capsys)


def test_there_is_a_file_of_every_type_with_the_rows_asked_for_and_no_key_twice(demo: Demo) -> None:
    demo("--rows", "300")
    for name, (type_name, header, key) in GOOD.items():
        table = demo.table(name)
        assert tuple(table[0]) == header
        assert len(table) == 301, name
        keys = Counter(tuple(str(row[header.index(column)]).lower() for column in key) for row in table[1:])
        assert max(keys.values()) == 1, name
        told = demo.truth["files"][name]
        assert (told["type"], told["totalRows"], told["inserted"], told["failed"]) == (type_name, 300, 300, 0)


def test_components_are_those_of_items_in_the_price_list(demo: Demo) -> None:
    demo("--rows", "50")
    items = {tuple(row[:2]) for row in demo.table("Price-List.csv")[1:]}
    assert {tuple(row[:2]) for row in demo.table("Price-List-Components.csv")[1:]} <= items


def test_a_workbook_has_dates_numbers_and_text_as_such(demo: Demo) -> None:
    demo("--rows", "200")
    assert openpyxl.load_workbook(demo.folder / "Accounts-Payable.xlsx").sheetnames == ["Notes", "AP Data"]
    number, vendor, category, amount, issued, due, _ = demo.table("Accounts-Payable.xlsx")[1]
    assert all(isinstance(cell, str) for cell in (number, vendor, category))
    assert isinstance(amount, int | float)
    assert isinstance(issued, datetime)
    assert isinstance(due, datetime)
    numbers = [row[0] for row in demo.table("Accounts-Payable.xlsx")[1:]]
    assert any(number.startswith("00") for number in numbers)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(demo: Demo) -> None:
    demo("--rows", "40", "--seed", "7")
    first = demo.bytes()
    demo("--rows", "40", "--seed", "7")
    assert demo.bytes() == first
    demo("--rows", "40", "--seed", "8")
    changed = {name for name, data in demo.bytes().items() if data != first[name]}
    assert set(GOOD) <= changed


def test_every_type_has_bad_files_and_each_names_its_errors(demo: Demo) -> None:
    demo("--rows", "5")
    bad = {name: told for name, told in demo.truth["files"].items() if name.startswith("bad/")}
    assert {told["type"] for told in bad.values()} == set(TYPES)
    for name, told in bad.items():
        if told["status"] != "SUCCEEDED":
            assert told["code"], name
            continue
        assert told["failed"] == len({error["row"] for error in told["errors"]})
        assert told["inserted"] + told["duplicates"] + told["failed"] == told["totalRows"]
    assert {told["status"] for told in bad.values()} == {"SUCCEEDED", "FAILED", "REFUSED"}


def test_bad_cells_stand_where_truth_says(demo: Demo) -> None:
    demo("--rows", "5")
    for name, told in demo.truth["files"].items():
        if "bad-cells.csv" not in name:
            continue
        table = demo.table(name)
        assert len(table) == told["totalRows"] + 1
        for error in told["errors"]:
            cell = table[error["row"] - 1][table[0].index(error["column"])]
            assert (cell == "") == (error["code"] == "required"), (name, error, cell)
    book = openpyxl.load_workbook(demo.folder / "bad" / "Accounts-Payable-formula-errors.xlsx", data_only=True)
    sheet = book["AP Data"]
    cells = {error["row"]: error for error in demo.truth["files"]["bad/Accounts-Payable-formula-errors.xlsx"]["errors"]}
    values = [sheet.cell(row, rows.PAYABLES.index(error["column"]) + 1).value for row, error in cells.items()]
    assert values == ["#DIV/0!", "#N/A", None, "much", None, None, "31/12/2024", 45_123]


def test_bad_files_break_in_the_way_they_are_named_for(demo: Demo) -> None:
    demo("--rows", "5")
    bad = demo.folder / "bad"
    assert (bad / "Customers-renamed.xlsx").read_bytes().startswith(b"E-mail Address,")
    assert (bad / "Accounts-Payable-renamed.csv").read_bytes().startswith(b"PK")
    assert openpyxl.load_workbook(bad / "Accounts-Payable-wrong-sheet.xlsx").sheetnames == ["Notes", "Data"]
    for name in ("broken-encoding", "windows-1252"):
        with pytest.raises(UnicodeDecodeError):
            (bad / f"Customers-{name}.csv").read_bytes().decode()
    assert "é" in (bad / "Customers-windows-1252.csv").read_bytes().decode("cp1252")
    assert (bad / "Customers-utf-16.csv").read_bytes().decode("utf-16").startswith("E-mail Address,")
    with pytest.raises(csv.Error):
        list(csv.reader(io.StringIO((bad / "Customers-unclosed-quote.csv").read_text("utf-8")), strict=True))
    twice = demo.table("bad/Customers-duplicate-keys.csv")[1:]
    keys = Counter(row[0].lower() for row in twice)
    assert (
        sum(count - 1 for count in keys.values())
        == demo.truth["files"]["bad/Customers-duplicate-keys.csv"]["duplicates"]
    )


def test_the_manifest_of_the_repository_knows_every_file(demo: Demo) -> None:
    demo("--rows", "5")
    listed = manifest.load(str(Path(__file__).parents[2] / "config" / "import-manifest.json"))
    assert Settings.model_fields["import_manifest"].default == "config/import-manifest.json"
    sheets = {"ap": "AP Data", "budgetForecast": "Budget"}
    for name, told in demo.truth["files"].items():
        entry = listed.entry(Path(name).name)
        assert entry is not None, name
        assert (entry.type, entry.sheet) == (told["type"], sheets.get(told["type"])), name


def test_people_see_what_was_written_and_what_to_try(demo: Demo) -> None:
    out = demo("--rows", "1234")
    assert "1,234 rows" in out
    assert f"rowlock import {demo.folder}/Customers.csv --type customers --wait --app backoffice:app" in out
    readme = (demo.folder / "README.txt").read_text(encoding="utf-8")
    assert all(name in readme for name in demo.truth["files"])


def test_programs_get_the_truth(demo: Demo) -> None:
    told = json.loads(demo("--rows", "3", "--json"))
    assert told["files"] == demo.truth["files"]
    assert told["next"].startswith("rowlock import ")


def test_the_readme_names_every_option() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    command: Any = typer.main.get_command(app)
    options = command.commands["demo"].commands["files"].params
    named = [name for option in options for name in option.opts if name.startswith("--")]
    assert set(re.findall(r"^\| `(--[a-z]+)", readme, re.MULTILINE)) == set(named)


def test_a_mistake_is_told_to_people_and_programs(demo: Demo) -> None:
    told = json.loads(demo("--type", "nothing", "--json", code=2))
    assert told["code"] == "usage"
    assert demo.err == f"error: {told['message']}\n"
    demo("--rows", "0", code=2)
    assert "--rows" in demo.err
    assert not demo.folder.exists()


def test_one_type_alone(demo: Demo) -> None:
    demo("--rows", "3", "--type", "priceList")
    assert set(demo.truth["files"]) == {"Price-List.csv", "bad/Price-List-bad-cells.csv"}
    demo("--rows", "3", "--type", "xactRaw", "--type", "ap")
    assert {"Price-List.csv", "Xact-Raw.csv", "Accounts-Payable.xlsx"} <= set(demo.truth["files"])
    assert "Customers.csv" not in demo.truth["files"]
    demo("--type", "nothing", code=2)
    assert "--type nothing: there are customers, ap," in demo.err


@pytest.mark.parametrize("name", ["Customers.csv", "bad/Customers-empty.csv", "README.txt", "truth.json"])
def test_a_file_of_somebody_else_is_not_overwritten(demo: Demo, name: str) -> None:
    (demo.folder / "bad").mkdir(parents=True)
    (demo.folder / name).write_text("mine")
    demo("--rows", "3", code=2)
    assert name in demo.err
    assert "--force" in demo.err
    assert demo.bytes() == {name: b"mine"}
    demo("--rows", "3", "--force")
    assert (demo.folder / name).read_text("utf-8") != "mine"


def test_a_sample_that_was_changed_is_somebody_elses(demo: Demo) -> None:
    demo("--rows", "3")
    with (demo.folder / "Customers.csv").open("a") as file:
        file.write("mine,too\n")
    demo("--rows", "3", code=2)
    assert "was changed since" in demo.err
    assert (demo.folder / "Customers.csv").read_text("utf-8").endswith("mine,too\n")


def test_a_folder_that_cannot_be_made_is_told(demo: Demo) -> None:
    demo.folder.write_text("a file")
    demo(code=2)
    assert "samples" in demo.err


def test_memory_does_not_grow_with_the_rows() -> None:
    class Nowhere(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return len(data)

    def peak(count: int) -> int:
        tracemalloc.start()
        for sample in good_files(1, count):
            sample.write(io.BufferedWriter(Nowhere()))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(6_000) < peak(1_500) + 500_000


def test_a_workbook_stays_below_the_size_of_an_upload(tmp_path: Path) -> None:
    sample = next(sample for sample in good_files(1, XLSX_ROWS_MAX // 50) if sample.type == "ap")
    with (tmp_path / "ap.xlsx").open("wb") as to:
        sample.write(to)
    assert 50 * (tmp_path / "ap.xlsx").stat().st_size < Settings.model_fields["import_xlsx_bytes_max"].default


def test_there_are_so_many_budgets_and_no_more() -> None:
    sample = next(sample for sample in good_files(1, 20_000) if sample.type == "budgetForecast")
    assert sample.write(io.BytesIO()).rows == rows.BUDGETS_MAX
    *_, last = rows.budgets(1, 0, rows.BUDGETS_MAX)
    assert last[0] == 2_199  # the importer takes years up to 2200


def test_cells_are_what_they_were(tmp_path: Path) -> None:
    cells = ["a < b & c", " blanks ", "", None, 5, True, Formula("1+1", "2"), Formula("1/0", "#DIV/0!"), Formula("A1")]
    with (tmp_path / "book.xlsx").open("wb") as to:
        write_workbook(to, [Sheet("One & <two>", [cells, [], ["below"]])])
    sheet = openpyxl.load_workbook(tmp_path / "book.xlsx", data_only=True)["One & <two>"]
    found = [cell.value for cell in sheet[1]]
    assert found == ["a < b & c", " blanks ", None, None, 5, True, 2, "#DIV/0!", None]
    assert sheet["A3"].value == "below"
