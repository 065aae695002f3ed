"""Small files that would take long to read are read in part, counted, or refused."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from imports.csv_files import SMALL, read
from rowlock.errors import FileRefused
from rowlock.imports.read import delimited, unpack
from rowlock.imports.read.delimited import open_delimited
from rowlock.imports.read.source import BadRecord

MIXED = "éééééé,b\n".encode() + b'1,2\n1,2,3\n"x\n\xff,2\n' * 4


@pytest.mark.parametrize("breaks", ["\n", "\r", "\r\n", "\n\r\r\n"])
def test_rows_around_many_empty_lines_keep_their_numbers(breaks: str) -> None:
    each = {"\n\r\r\n": 3}.get(breaks, 1)
    found = read(breaks * 3_000 + "a,b\n" + breaks * 3_000 + "1,2\n" + breaks * 3_000 + "3,4\n")
    empty = 3_000 * each
    assert found.head == [(empty + 1, ("a", "b")), (2 * empty + 2, ("1", "2")), (3 * empty + 3, ("3", "4"))]
    assert found.rows == [(2 * empty + 2, ("1", "2")), (3 * empty + 3, ("3", "4"))]


def test_a_line_number_behind_empty_lines_is_right() -> None:
    found = read("a,b\n1,2\n" + "\r" * 500 + "1,2,3\n" + "\r\n" * 500 + "1,2,3\n")
    assert found.bad == [(503, "too_many_cells"), (1_004, "too_many_cells")]
    assert [reason.split()[1] for reason in found.reasons] == ["503", "1004"]


@pytest.mark.parametrize("content", ["", "a,b\n"])
def test_first_rows_are_not_looked_for_behind_endless_blank_ones(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_BLANK_RECORDS_MAX", 100)
    content += ",\n" * 100 + "1,2\n"
    if content.startswith("a"):
        found = read(content)
        assert found.head == [(1, ("a", "b"))]
        assert found.rows == [(102, ("1", "2"))]
    else:
        with pytest.raises(FileRefused, match="the first 100 rows of the file are blank") as refused:
            read(content)
        assert refused.value.code == "empty_file"


def test_a_header_is_not_looked_for_behind_endless_empty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_BLANK_BYTES_MAX", 1_000)
    assert read("\n" * 999 + "a,b\n1,2\n").rows == [(1_001, ("1", "2"))]
    with pytest.raises(FileRefused, match="the first 1,000 rows of the file are blank"):
        read("\n" * 1_000 + "a,b\n1,2\n")


@pytest.mark.parametrize("told_max", [0, 1, 5, 100])
@pytest.mark.parametrize("block_bytes", [16, 64 << 10])
def test_bad_records_past_the_limit_are_counted_and_not_told(told_max: int, block_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(MIXED)

    def bad(most: int) -> tuple[list[BadRecord], Counter[str], int]:
        limits = replace(SMALL, told_max=most, block_bytes=block_bytes)
        batches = list(open_delimited(path, name=path.name, limits=limits).batches(1, 2))
        counted = sum((batch.counted for batch in batches), Counter[str]())
        return [record for batch in batches for record in batch.bad], counted, sum(b.frame.height for b in batches)

    every, none, rows = bad(1_000)
    told, counted, same_rows = bad(told_max)
    assert (len(every), none, rows) == (12, Counter(), 4)
    assert told == every[:told_max]
    assert counted == Counter(record.code for record in every[told_max:])
    assert same_rows == rows


def test_a_surplus_cell_is_judged_like_any_other() -> None:
    found = read(f"éé,b\n1,2,{'x' * 1_001}\n1,2,{'x' * 999},{'y' * 999}\n1,2, ,\u3000\n".encode() + b"1,2,\xff,4\n")
    assert found.bad == [(2, "cell_too_long"), (3, "too_many_cells"), (5, "bad_encoding")]
    assert found.rows == [(4, ("1", "2"))]


def test_broken_bytes_are_found_wherever_they_are_looked_for() -> None:
    line = "é" * 400 + ",€\n"
    for shift in range(8):
        lines = ["x" * shift + line] * 30
        data = "a,b\n" + "".join(lines)
        content = data.encode()
        assert read(content).cells == [("x" * shift + "é" * 400, "€")] * 30
        found = read(content[:-20] + b"\xff" + content[-20:])
        assert found.bad == [(31, "bad_encoding")]
        assert len(found.rows) == 29


def test_members_of_any_size_are_read_as_one_text() -> None:
    text = b"a,b\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(2_000))
    for size in (1, 7, 511, 5_000):
        parts = (text[at : at + size] for at in range(0, len(text), size))
        packed = b"".join(gzip.compress(part, mtime=0) + b"\0" * (len(part) % 3) for part in parts)
        assert read(packed, name="file.csv.gz").cells == [(str(n), str(n)) for n in range(2_000)]


def test_a_file_of_endless_tiny_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "_SMALL_MEMBERS_MAX", 10)
    start, empty = gzip.compress(b"a,b\n1,2\n"), gzip.compress(b"")
    large = gzip.compress(b"1,2\n" * 256)
    assert len(read(start + large * 50 + empty * 10).rows) == 1 + 50 * 256
    with pytest.raises(FileRefused, match="more than 10 tiny parts") as refused:
        read(start + empty * 11)
    assert refused.value.code == "damaged_file"


def test_a_member_cut_off_or_followed_by_rubbish_is_told_so() -> None:
    whole = gzip.compress(b"a,b\n1,2\n")
    for content, code in (
        (whole + whole[:-1], "truncated_file"),
        (whole + whole[:1], "truncated_file"),
        (whole + b"\0\0rubbish", "damaged_file"),
    ):
        with pytest.raises(FileRefused) as refused:
            read(content)
        assert refused.value.code == code
