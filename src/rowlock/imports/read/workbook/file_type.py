"""Recognises by their first bytes files that are not .xlsx workbooks."""

from __future__ import annotations

from pathlib import Path

from rowlock.errors import FileRefused

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")


def refuse_other_files(path: Path) -> None:
    """Raise FileRefused, which names the type, for a file that does not begin like a zip archive."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(ZIP):
        return
    if start.startswith(OLE):
        raise _compound(path)
    raise FileRefused(f"This is not an .xlsx workbook but {_guess(start)}", code="not_a_workbook")


def _guess(start: bytes) -> str:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    lower = text[:1024].lower()
    again = "Open it in a spreadsheet program, save it as .xlsx and upload that."
    if not start:
        return "an empty file. Upload it again: the transfer may have failed."
    if start.startswith(b"%PDF"):
        return f"a PDF document. {again}"
    if start.startswith(b"\x1f\x8b"):
        return "a gzip archive. Unpack it and upload the file inside."
    if lower.startswith((b"<!doctype html", b"<html", b"<table", b"<meta", b"<head", b"<style", b"<div")):
        return f"a web page (HTML). {again}"
    if b"excel.sheet" in lower or b"schemas-microsoft-com:office:spreadsheet" in lower:
        return f"an XML spreadsheet of 2003. {again}"
    if lower.startswith(b"<"):
        return f"an XML file. {again}"
    if b"\x00" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"a file of another kind. {again}"
    return "a text file. If it is a CSV file, name it .csv and upload it again."


def _compound(path: Path) -> FileRefused:
    names = _names_in(path, ("EncryptedPackage", "EncryptionInfo", "Workbook", "Book", "WordDocument"))
    if "EncryptedPackage" in names or "EncryptionInfo" in names:
        return FileRefused(
            "The workbook is encrypted. Remove the password (File, Info, Protect Workbook) and upload it again.",
            code="encrypted_file",
        )
    if "Workbook" in names or "Book" in names:
        return FileRefused(
            "This is a workbook in the old .xls format. Save it as .xlsx and upload that.", code="old_workbook"
        )
    return FileRefused(
        "This is an old Office document, but not a workbook. Save the table as .xlsx or .csv and upload that.",
        code="not_a_workbook",
    )


def _names_in(path: Path, names: tuple[str, ...]) -> set[str]:
    """Return which of `names` an OLE file's directory has: in UTF-16, at multiples of 128 bytes, ended by NUL."""
    found: set[str] = set()
    wanted = {(name + "\0").encode("utf-16-le"): name for name in names}
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            for encoded, name in wanted.items():
                at = block.find(encoded)
                while at >= 0:
                    if at % 128 == 0:
                        found.add(name)
                        break
                    at = block.find(encoded, at + 1)
    return found
