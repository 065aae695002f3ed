"""Recognises a file's type by its name and its first bytes, which must agree before anything else reads it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Literal

from rowlock.errors import FileRefused

HEAD_BYTES = 65_536
NAME_LENGTH_MAX = 255
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".xlsx": "xlsx", ".xlsm": "xlsx"}
_TAKEN = ".xlsx, .xlsm, .csv, .tsv and .txt, the last three also packed (.csv.gz)"

_ZIP, _GZIP, _OLE = b"PK\x03\x04", b"\x1f\x8b", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OTHERS = (
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"BM\x00\x00", "an image"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3\x00", "a SQLite database"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a", "a RAR archive"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x7fELF", "a program"),
    (b"{\\rtf", "an RTF document"),
)
_WORDS = (
    (rb"<!doctype html|<html[\s>]|<table[\s>]|<head[\s>]", "a web page (HTML)"),
    (rb"<\?xml|<workbook[\s>]", "an XML file"),
    (rb'\{\s*"[^"\r\n]*"\s*:|\[\s*\{\s*"', "a JSON file"),
)
_ENTRIES = (
    ("mimetype", "an OpenDocument file"),
    ("word/", "a Word document"),
    ("ppt/", "a PowerPoint presentation"),
    ("xl/workbook.bin", "a binary workbook (.xlsb)"),
    ("Index/", "a Numbers document"),
    ("META-INF/", "a Java archive"),
)
_BINARY_PART = 0.1  # share of control characters in the first bytes that no text reaches


class FileKind(StrEnum):
    """The kinds of files that can be imported."""

    CSV = "csv"
    CSV_GZ = "csv.gz"
    XLSX = "xlsx"

    @property
    def family(self) -> Literal["csv", "xlsx"]:
        return "xlsx" if self is FileKind.XLSX else "csv"


def clean_name(given: str) -> str:
    """Return an uploaded file's name without the folders that some programs send; raises FileRefused."""
    name = re.split(r"[/\\]", given)[-1].strip()
    if not name or name in (".", "..") or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise FileRefused(
            f"{given[:80]!r} is not a file name of 1 to {NAME_LENGTH_MAX} printable characters", code="file_name_bad"
        )
    return name


def kind_of(name: str) -> FileKind:
    """Return the kind of file that the name says; raises FileRefused if it cannot be imported."""
    low = name.lower()
    packed = low.endswith(".gz")
    suffix = Path(low[:-3] if packed else low).suffix
    family = _SUFFIXES.get(suffix)
    if family == "csv":
        return FileKind.CSV_GZ if packed else FileKind.CSV
    if family == "xlsx" and not packed:
        return FileKind.XLSX
    if suffix in (".xls", ".xlt"):
        raise FileRefused(
            f"{name} is a workbook of Excel 97-2003; open it and save it as .xlsx or .csv", code="file_old_format"
        )
    raise FileRefused(f"{name}: only {_TAKEN} can be imported", code="file_type_unknown")


def check_head(kind: FileKind, name: str, head: bytes) -> None:
    """Raise FileRefused if the first bytes of a file contradict its name."""
    if not head:
        raise FileRefused(f"{name} is empty", code="file_empty")
    if head.startswith(_OLE):
        return  # check_whole decides: the type is stored further on in the file
    found = _what(head)
    if kind is FileKind.XLSX:
        if found is not None:
            raise _mismatch(name, found, "open it and save it as .xlsx")
        if not head.startswith(_ZIP):
            raise _mismatch(
                name, "a text file" if _is_text(head) else "not a workbook", "if it is a CSV file, name it .csv"
            )
        return
    if kind is FileKind.CSV_GZ and head.startswith(_GZIP):
        head = _unpacked(name, head)
        found = _what(head)
    elif kind is FileKind.CSV_GZ:
        raise _mismatch(name, found or ("a text file" if _is_text(head) else "not a gzip file"), "leave out the .gz")
    if head.startswith(_ZIP):
        raise _mismatch(name, found or "an Excel workbook", "name it .xlsx" if found is None else "save it as .csv")
    if head.startswith(_GZIP):
        raise _mismatch(name, "a gzip file", "if it is a packed CSV file, name it .csv.gz")
    if found is not None:
        raise _mismatch(name, found, "save it as .csv")
    if head and not _is_text(head):
        raise _mismatch(name, "not a text file", "save it as .csv")


def check_whole(kind: FileKind, name: str, path: Path) -> None:
    """Raise FileRefused for an OLE file: an encrypted workbook and an old one have the same first bytes."""
    with path.open("rb") as file:
        if file.read(len(_OLE)) != _OLE:
            return
        entries = _ole_entries(file.read(512))
        file.seek(entries)
        directory = file.read(16_384)
    if "EncryptedPackage".encode("utf-16-le") in directory or "EncryptionInfo".encode("utf-16-le") in directory:
        raise FileRefused(
            f"{name} is protected with a password; open it, remove the password and save it again",
            code="file_encrypted",
        )
    if kind is FileKind.XLSX:
        raise FileRefused(
            f"{name} is a workbook of Excel 97-2003, although its name ends in {Path(name).suffix}; open it and "
            "save it as .xlsx",
            code="file_old_format",
        )
    raise _mismatch(name, "an Office document", "open it and save it as .csv")


def _ole_entries(header: bytes) -> int:
    """Return the offset of an OLE file's directory; `header` lacks the first eight bytes."""
    shift = int.from_bytes(header[22:24], "little")
    sector = int.from_bytes(header[40:44], "little")
    return (sector + 1) << shift if shift in (9, 12) and sector < 1 << 24 else 512


def _what(head: bytes) -> str | None:
    """Describe the file if its first bytes show a type other than text, .xlsx workbook or gzip, else return None."""
    if head.startswith(_ZIP):
        entries = list(_zip_entries(head))
        # A workbook may embed documents of any kind; if they are not compressed, their entries appear here, too.
        if any(entry.startswith("xl/") and entry != "xl/workbook.bin" for entry in entries):
            return None if "xl/workbook.bin" not in entries else "a binary workbook (.xlsb)"
        for entry in entries:
            for start, words in _ENTRIES:
                if entry.startswith(start):
                    return words
            if entry.endswith((".csv", ".tsv", ".xlsx")):
                return "a zip archive"
        return None
    for magic, words in _OTHERS:
        if head.startswith(magic):
            return words
    text = head[:4_096].removeprefix(b"\xef\xbb\xbf").replace(b"\x00", b"").lstrip(b"\xff\xfe \t\r\n")
    for pattern, words in _WORDS:
        if re.match(pattern, text, re.IGNORECASE):
            return words
    return None


def _zip_entries(head: bytes) -> Iterator[str]:
    for found in re.finditer(rb"PK\x03\x04", head):
        at = found.start()
        length = int.from_bytes(head[at + 26 : at + 28], "little")
        yield head[at + 30 : at + 30 + min(length, 512)].decode("utf-8", "replace")


def _unpacked(name: str, head: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(head, HEAD_BYTES)
    except zlib.error:
        raise FileRefused(f"{name} is a damaged gzip file", code="file_damaged") from None


def _is_text(head: bytes) -> bool:
    """Return whether it may be text in some encoding: UTF-16 has many zero bytes, but only in every other place."""
    head = head[:4_096]
    evens, odds = head[::2].count(0), head[1::2].count(0)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or (
        max(evens, odds) > len(head) / 6 and min(evens, odds) * 8 < len(head)
    ):
        head = head.replace(b"\x00", b"")
    control = sum(byte < 32 and byte not in b"\t\n\r\f\v\x1a\x1b" for byte in head)
    return control <= len(head) * _BINARY_PART


def _mismatch(name: str, found: str, advice: str) -> FileRefused:
    suffix = ".csv.gz" if name.lower().endswith(".gz") else Path(name).suffix
    return FileRefused(f"{name} is {found}, although its name ends in {suffix}; {advice}", code="file_content_mismatch")
