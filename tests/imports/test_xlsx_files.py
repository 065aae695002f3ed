"""Files that are not valid workbooks: the error says what they are, and what to do."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from imports.workbooks import one_sheet, parts, read, shared_xml, sheet_xml, write
from rowlock import errors
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.workbook import open_workbook

GOOD = '<row r="1"><c r="A1" t="s"><v>0</v></c></row>'


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(errors.FileRefused) as refused:
        read(path)
    message = str(refused.value)
    assert message.endswith(".")
    return refused.value.code, message


def compound(path: Path, *names: str) -> Path:
    """An OLE compound file, as far as its directory."""
    entries = b"".join(name.encode("utf-16-le").ljust(128, b"\0") for name in ("Root Entry", *names))
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(512, b"\0") + b"\0" * 4096 + entries)
    return path


def test_an_encrypted_workbook_is_told_to_lose_its_password(tmp_path: Path) -> None:
    code, message = refusal(compound(tmp_path / "e.xlsx", "EncryptionInfo", "EncryptedPackage"))
    assert code == "encrypted_file"
    assert "Remove the password" in message


def test_an_old_workbook_is_told_to_be_saved_as_xlsx(tmp_path: Path) -> None:
    for name in ("Workbook", "Book"):
        code, message = refusal(compound(tmp_path / "o.xlsx", name))
        assert code == "old_workbook"
        assert "Save it as .xlsx" in message
    assert refusal(compound(tmp_path / "w.xlsx", "WordDocument"))[0] == "not_a_workbook"


@pytest.mark.parametrize(
    ("members", "named"),
    [
        (["mimetype", "content.xml"], ".ods"),
        (["[Content_Types].xml", "xl/workbook.bin", "_rels/.rels"], ".xlsb"),
        (["[Content_Types].xml", "word/document.xml", "_rels/.rels"], "Word"),
        (["[Content_Types].xml", "ppt/presentation.xml", "_rels/.rels"], "presentation"),
        (["Index/Document.iwa"], "Numbers"),
    ],
)
def test_workbooks_of_other_formats_are_named(tmp_path: Path, members: list[str], named: str) -> None:
    code, message = refusal(write(tmp_path / "o.xlsx", dict.fromkeys(members, "<x/>")))
    assert code == "unsupported_workbook"
    assert named in message


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"id,name\n1,Ann\n", "text file"),
        ("id\tname\n".encode("utf-16"), "text file"),
        (b"\xef\xbb\xbf<html><table><tr><td>1</td></tr></table></html>", "web page"),
        (b'<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?><Workbook/>', "2003"),
        (b"%PDF-1.7\n", "PDF"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "another kind"),
        (b"", "empty"),
    ],
)
def test_other_files_with_the_ending_of_a_workbook_are_named(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "renamed.xlsx"
    path.write_bytes(content)
    code, message = refusal(path)
    assert code == "not_a_workbook"
    assert named in message


def test_a_zip_without_a_workbook_is_told_so(tmp_path: Path) -> None:
    assert refusal(write(tmp_path / "z.xlsx", {"data.csv": "a,b\n1,2\n"}))[0] == "not_a_workbook"
    assert refusal(write(tmp_path / "empty.xlsx", {}))[0] == "not_a_workbook"


def test_a_file_cut_off_anywhere_is_damaged(tmp_path: Path) -> None:
    whole = one_sheet(tmp_path, GOOD, shared=shared_xml("<t>a</t>")).read_bytes()
    path = tmp_path / "cut.xlsx"
    for length in range(4, len(whole), 23):
        path.write_bytes(whole[:length])
        assert refusal(path)[0] == "damaged_file"


def test_a_wrong_checksum_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "crc.xlsx"
    book = parts(sheet_xml('<row r="1"><c r="A1"><v>1234</v></c></row>'))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, data in book.items():
            file.writestr(name, data)
    path.write_bytes(path.read_bytes().replace(b"<v>1234</v>", b"<v>1235</v>"))
    assert refusal(path)[0] == "damaged_file"


@pytest.mark.parametrize("part", ["xl/workbook.xml", "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"])
def test_a_missing_part_is_damage_and_named(tmp_path: Path, part: str) -> None:
    book = parts(sheet_xml(GOOD), shared=shared_xml("<t>a</t>"))
    del book[part]
    code, message = refusal(write(tmp_path / "m.xlsx", book))
    assert code == "damaged_file"
    assert part in message


def test_parts_are_found_by_their_usual_names_without_relationships(tmp_path: Path) -> None:
    book = parts(sheet_xml(GOOD), shared=shared_xml("<t>a</t>"))
    del book["_rels/.rels"]
    assert read(write(tmp_path / "r.xlsx", book)).texts == {1: ["a"]}


@pytest.mark.parametrize(
    "sheet",
    [
        sheet_xml(GOOD)[:-30],
        sheet_xml(GOOD) + "<more/>",
        sheet_xml(GOOD + "<row>"),
        sheet_xml('<row r="1"><c r="A1"><v>1</v></d></row>'),
        sheet_xml('<row r="1"><c r="A1"><v>1 & 2</v></c></row>'),
        sheet_xml('<row r="1"><c r="A1"><v>&nbsp;</v></c></row>'),
        sheet_xml('<row r="1"><c r="A1" t="str"><v>&#0;</v></c></row>'),
        sheet_xml('<row r="1"><c r="A1" t="str"><v>a\x01</v></c></row>'),
        sheet_xml('<row r="1"><c r="A1" t="str"><v>a\uffff</v></c></row>'),
        sheet_xml('<row r="1"><c r="A1" t="str"><v>a]]></v></c></row>'),
        sheet_xml('<row r="1"><c r="A1" r="B1"><v>1</v></c></row>'),
        "",
        "<?xml version='1.0' encoding='klingon'?><worksheet/>",
    ],
)
def test_xml_that_is_none_is_damage(tmp_path: Path, sheet: str) -> None:
    assert refusal(write(tmp_path / "x.xlsx", parts(sheet)))[0] == "damaged_file"


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    sheet = sheet_xml('<row r="1"><c r="A1" t="str"><v>caf?</v></c></row>').encode().replace(b"caf?", b"caf\xe9")
    assert refusal(write(tmp_path / "b.xlsx", parts("") | {"xl/worksheets/sheet1.xml": sheet}))[0] == "damaged_file"


def test_a_member_with_a_password_is_encrypted(tmp_path: Path) -> None:
    path = one_sheet(tmp_path, GOOD, shared=shared_xml("<t>a</t>"))
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        data[at + 8] |= 1
        at = data.find(b"PK\x01\x02", at + 4)
    path.write_bytes(data)
    assert refusal(path)[0] == "encrypted_file"


def test_the_file_is_given_back_when_it_is_refused(tmp_path: Path) -> None:
    path = one_sheet(tmp_path, GOOD, shared=shared_xml("<t>a</t>"))
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(errors.FileRefused):
        open_workbook(path, sheet="none", limits=ReadLimits())
    assert len(sorted(Path("/proc/self/fd").iterdir())) <= len(before)
