"""The manifest: exact names before patterns, and errors that name file, line and entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowlock.errors import SettingsError
from rowlock.imports.intake.manifest import Entry, load

GOOD = """{
  "*.csv": {"type": "anything"},
  "Accounts-Payable.xlsx": {"type": "ap", "sheetName": "AP Data"},
  "customers-*.csv": {"type": "customers"},
  "customers-test.csv": {"type": "tests"},
  "Größen.csv": {"type": "sizes"}
}"""


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "import-manifest.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("Accounts-Payable.xlsx", Entry("Accounts-Payable.xlsx", "ap", "AP Data")),
        ("ACCOUNTS-PAYABLE.XLSX", Entry("Accounts-Payable.xlsx", "ap", "AP Data")),
        ("customers-test.csv", Entry("customers-test.csv", "tests")),
        ("customers-2026.csv", Entry("*.csv", "anything")),  # the first pattern that matches
        ("Gro\u0308\u00dfen.csv", Entry("Größen.csv", "sizes")),  # as some systems spell it
        ("unknown.xlsx", None),
        ("", None),
    ],
)
def test_the_very_name_goes_before_patterns_and_patterns_go_in_order(
    tmp_path: Path, name: str, entry: Entry | None
) -> None:
    assert load(written(tmp_path, GOOD)).entry(name) == entry


def test_a_manifest_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert load(str(tmp_path / "none.json")).entry("a.csv") is None


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    assert load(written(tmp_path, b"\xef\xbb\xbf" + GOOD.encode())).entry("a.csv") is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n"a.csv": {"type": "x"},\n}', "line 3: it is not JSON"),
        ("[]", "line 1: it must be an object"),
        ('{"a.csv": "x"}', "line 1, entry 'a.csv': it must be an object"),
        ('{\n\n"a.csv": {"sheetName": "S"}}', "line 3, entry 'a.csv': \"type\" must be"),
        ('{"a.csv": {"type": 1}}', "entry 'a.csv': \"type\" must be"),
        ('{"b": {"type": "x"},\n"a.csv": {"type": "x", "sheet": "S"}}', "line 2, entry 'a.csv': 'sheet' is unknown"),
        ('{"a.csv": {"type": "x", "sheetName": 3}}', '"sheetName" must be'),
        ('{"a": {"type": "x"},\n"b": {"type": "x"},\n"a": {"type": "y"}}', "line 3, entry 'a': it occurs twice"),
        (b'{\n"\xff": 1}', "line 2: it is not UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        (" " * 1_100_000, "more than 1,048,576 bytes"),
    ],
    ids=lambda part: repr(part)[:24],
)
def test_what_is_wrong_is_named_by_file_line_and_entry(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(written(tmp_path, text))
    assert told in str(refused.value)
    assert "import-manifest.json" in str(refused.value)
    assert str(tmp_path) not in str(refused.value)
