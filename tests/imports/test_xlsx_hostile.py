"""Workbooks made to do harm are refused within seconds and in little memory."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imports.workbooks import TEXT, one_sheet, parts, read, shared_xml, sheet_xml, styles_xml, write
from rowlock import errors
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.workbook import open_workbook, shared
from rowlock.imports.read.workbook.package import MEMBERS_MAX

MEMORY_MAX = 512 << 20
SECONDS_MAX = 5.0


def verdict(path: Path) -> str:
    """In a process of its own with the memory of the planner's sandbox: what it says, within the time."""
    script = """
        import sys, time
        from pathlib import Path
        from rowlock.errors import FileRefused
        from rowlock.imports.read.limits import ReadLimits
        from rowlock.imports.read.workbook import open_workbook
        began = time.process_time()
        try:
            source = open_workbook(Path(sys.argv[1]), sheet=None, limits=ReadLimits())
            width = max((len(row.cells) for row in source.head(20)), default=1)
            codes = {bad.code for batch in source.batches(0, width) for bad in batch.bad}
            print(" ".join(sorted(codes)) or "read")
        except FileRefused as refused:
            print(refused.code)
        # The most that this process had itself; getrusage counts what its parent had when it forked as well.
        most = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
        print(most, time.process_time() - began)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, used = done.stdout.splitlines()
    kilobytes, seconds = used.split()
    assert int(kilobytes) << 10 < MEMORY_MAX
    assert float(seconds) < SECONDS_MAX
    return said


def refused_code(path: Path) -> str:
    with pytest.raises(errors.FileRefused) as refused:
        read(path)
    return refused.value.code


def test_two_cells_at_the_far_corners_are_two_rows(tmp_path: Path) -> None:
    rows = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
    path = one_sheet(tmp_path, rows)
    found = read(path)
    assert found.texts == {1: ["1"]}
    assert [(bad.row, bad.code) for bad in found.bad] == [(1048576, "too_many_cells")]
    assert "XFD1048576" in found.bad[0].reason
    assert verdict(path) == "too_many_cells"


@pytest.mark.parametrize(
    "part", ["xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/styles.xml", "xl/workbook.xml"]
)
def test_a_bomb_in_any_part_is_refused_before_it_unpacks(tmp_path: Path, part: str) -> None:
    book = parts(sheet_xml(""), shared=shared_xml(""), styles=styles_xml(0)) | {part: b" " * (100 << 20)}
    assert verdict(write(tmp_path / "bomb.xlsx", book)) in ("unsafe_archive", "file_too_large")


def test_a_bomb_below_the_ratio_is_read_in_little_memory(tmp_path: Path) -> None:
    padding = random.Random(1).randbytes(700_000).hex().encode()
    sheet = sheet_xml("").encode().replace(b"<sheetData>", b"<!--" + padding + b"--><sheetData>" + b" " * (60 << 20))
    assert verdict(write(tmp_path / "bomb.xlsx", parts("") | {"xl/worksheets/sheet1.xml": sheet})) in (
        "read",
        "damaged_file",
    )


def test_a_size_that_lies_is_damage(tmp_path: Path) -> None:
    path = one_sheet(tmp_path, '<row r="1"><c r="A1"><v>1</v></c></row>' * 1)
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02", data.find(b"sheet1.xml", data.find(b"PK\x01\x02")) - 100)
    for small in (1, 10, 100):
        struct.pack_into("<L", data, at + 24, small)
        path.write_bytes(data)
        assert refused_code(path) == "damaged_file"


def test_parts_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "o.xlsx", parts(sheet_xml("")) | {"a.bin": b"x" * 1000, "b.bin": b"x" * 1000})
    with zipfile.ZipFile(path) as file:
        first, second = file.getinfo("a.bin").header_offset, file.getinfo("b.bin").header_offset
    data = path.read_bytes()
    end = data.rfind(b"PK\x01\x02")
    end = next(
        at for at in range(end, 0, -1) if data[at : at + 4] == b"PK\x01\x02" and data[at + 46 :].startswith(b"b.bin")
    )
    path.write_bytes(data[: end + 42] + struct.pack("<L", first + 1) + data[end + 46 :])
    assert second > first
    assert refused_code(path) == "unsafe_archive"


def test_thousands_of_members_are_refused(tmp_path: Path) -> None:
    many = {f"x/{n}": b"" for n in range(MEMBERS_MAX)}
    assert refused_code(write(tmp_path / "m.xlsx", parts(sheet_xml("")) | many)) == "unsafe_archive"


def test_a_directory_of_a_hundred_thousand_members_is_not_even_read(tmp_path: Path) -> None:
    path = one_sheet(tmp_path, "")
    data = path.read_bytes()
    end = data.rfind(b"PK\x05\x06")
    start = struct.unpack_from("<L", data, end + 16)[0]
    entry = data[start : start + 46 + struct.unpack_from("<H", data, start + 28)[0]]
    directory = entry * 150_000
    record = data[end : end + 12] + struct.pack("<LLH", len(directory), start, 0)
    path.write_bytes(data[:start] + directory + record)
    began = time.process_time()
    assert refused_code(path) == "unsafe_archive"
    assert time.process_time() - began < 1.0


LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(12)
)


@pytest.mark.parametrize(
    "part", ["xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/styles.xml", "xl/workbook.xml"]
)
@pytest.mark.parametrize("doctype", [LAUGHS + "]>", "<!DOCTYPE x>", '<!DOCTYPE x SYSTEM "file:///etc/passwd">'])
def test_document_types_are_refused_in_any_part(tmp_path: Path, part: str, doctype: str) -> None:
    book = parts(sheet_xml(""), shared=shared_xml("<t>&m;</t>" if "shared" in part else ""), styles=styles_xml(0))
    body = book[part]
    assert isinstance(body, str)
    head, mark, tail = body.partition("?>\n")
    assert refused_code(write(tmp_path / "d.xlsx", book | {part: head + mark + doctype + tail})) == "unsafe_xml"


@pytest.mark.parametrize("part", ["xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/workbook.xml"])
def test_bottomless_nesting_is_refused(tmp_path: Path, part: str) -> None:
    book = parts(sheet_xml(""), shared=shared_xml("")) | {part: "<a>" * 1_000_000}
    assert refused_code(write(tmp_path / "n.xlsx", book)) == "damaged_file"


def test_a_cell_that_is_too_long_costs_its_row(tmp_path: Path) -> None:
    limits = ReadLimits(cell_chars_max=1000)
    long, fits = "ä" * 1001, "ä" * 1000
    rows = "".join(
        f'<row r="{n}"><c r="A{n}" {cell}</c></row>'
        for n, cell in enumerate(
            [
                f't="str"><v>{long}</v>',
                f't="inlineStr"><is><t>{long}</t></is>',
                't="s"><v>0</v>',
                't="s"><v>1</v>',
                f't="inlineStr"><is><t>{fits}</t></is>',
            ],
            1,
        )
    )
    for text in (rows, "<!-- -->" + rows):
        path = one_sheet(tmp_path, text, shared=shared_xml(f"<t>{long}</t>", f"<t>{fits}</t>"))
        found = read(path, limits=limits)
        assert found.rows == {4: [(TEXT, fits)], 5: [(TEXT, fits)]}
        assert [(bad.row, bad.code) for bad in found.bad] == [(n, "cell_too_long") for n in (1, 2, 3)]
        assert all(len(cell) <= 100 for bad in found.bad for cell in bad.cells)


def test_enormous_cells_and_rows_are_read_in_little_memory(tmp_path: Path) -> None:
    noise = random.Random(2).randbytes(300_000).hex()
    long = noise * 50  # 30 million characters, half of that when packed, slowly unless the level is low
    rows = f'<row r="1"><c r="A1"><v>1</v></c></row><row r="2"><c r="A2" t="inlineStr"><is><t>{long}</t></is></c></row>'
    assert verdict(one_sheet(tmp_path, rows, level=1)) == "cell_too_long"
    wide = "".join(f'<c r="A3" t="str"><v>{noise}</v></c>' for _ in range(40))
    assert verdict(one_sheet(tmp_path, f'<row r="3">{wide}</row>', level=1)) == "damaged_cell"
    assert verdict(one_sheet(tmp_path, "", shared=shared_xml(f"<t>{long}</t>"), level=1)) == "read"


def test_a_hundred_thousand_columns_are_refused(tmp_path: Path) -> None:
    cells = '<c t="str"><v>x</v></c>' * 100_000
    source = open_workbook(one_sheet(tmp_path, f'<row r="1">{cells}</row>'), sheet=None, limits=ReadLimits())
    with pytest.raises(errors.FileRefused) as refused:
        source.head(10)
    assert refused.value.code == "too_many_columns"
    source.close()
    assert verdict(tmp_path / "book.xlsx") == "too_many_columns"


def test_shared_texts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SHARED_BYTES_MAX", 100_000)
    assert (
        refused_code(one_sheet(tmp_path, "", shared=shared_xml(*(f"<t>{n:0200}</t>" for n in range(1000)))))
        == "file_too_large"
    )


def test_all_parts_together_are_bounded(tmp_path: Path) -> None:
    path = one_sheet(tmp_path, "")
    with pytest.raises(errors.FileRefused) as refused:
        open_workbook(path, sheet=None, limits=ReadLimits(unpacked_bytes_max=500))
    assert refused.value.code == "file_too_large"


def example() -> dict[str, str | bytes]:
    rows = "".join(
        f'<row r="{n}" spans="1:4"><c r="A{n}" t="s"><v>{n % 3}</v></c><c r="B{n}" s="1"><v>{45000 + n / 7}</v></c>'
        f'<c r="C{n}" t="b"><v>1</v></c><c r="D{n}" t="inlineStr"><is><t>x{n}</t></is></c></row>'
        for n in range(1, 8)
    )
    styles = styles_xml(0, "yyyy-mm-dd")
    return parts(sheet_xml(rows), shared=shared_xml("<t>a</t>", "<t>b_x000D_</t>", "<r><t>c</t></r>"), styles=styles)


def survives(path: Path) -> None:
    """Whatever happens is a refusal with a code, or rows."""
    code = ""
    try:
        source = open_workbook(path, sheet=None, limits=ReadLimits())
        try:
            source.head(5)
            for batch in source.batches(1, 4):
                assert batch.frame.width == 9
        finally:
            source.close()
    except errors.FileRefused as refused:
        code = refused.code
    assert code != "file_refused"


many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_file_with_changed_bytes_is_read_or_refused(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    path = write(tmp_path / "m.xlsx", example())
    data = bytearray(path.read_bytes())
    for at, byte in changes:
        data[at % len(data)] = byte
    path.write_bytes(data)
    survives(path)


TOKENS = ["<", ">", "&", '"', "'", "</row>", "<row>", "<c>", "<v>", "</v>", "<![CDATA[", "]]>", "<!--", "-->", "<?x ?>"]
TOKENS += [
    "&#55357;",
    "&amp;",
    "\x00",
    "\ufffe",
    "r=",
    ' r="A1"',
    ' t="s"',
    ' s="9"',
    "99999999999",
    "-1",
    "_xD800_",
    "</sheetData>",
]


@many
@given(
    part=st.sampled_from(sorted(example())),
    changes=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(TOKENS) | st.text(max_size=3)),
        min_size=1,
        max_size=4,
    ),
)
def test_a_file_with_changed_xml_is_read_or_refused(
    tmp_path: Path, part: str, changes: list[tuple[int, int, str]]
) -> None:
    book = example()
    text = book[part]
    assert isinstance(text, str)
    for at, length, new in changes:
        at %= len(text) + 1
        text = text[:at] + new + text[at + length :]
    survives(write(tmp_path / "x.xlsx", book | {part: text.encode("utf-8", "surrogatepass")}))
