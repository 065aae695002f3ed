"""Opens the zip archive of a workbook: checks it before anything is unpacked and reads it in bounded blocks."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Generator
from pathlib import Path

from rowlock.errors import FileRefused
from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.workbook.errors import damaged, too_large, unsafe_archive, unsupported
from rowlock.imports.read.workbook.file_type import refuse_other_files

MEMBERS_MAX = 10_000
DIRECTORY_BYTES_MAX = 4 << 20
RATIO_MAX = 100  # sheets shrink 10 to 30 times, a zip bomb 1,000 times
RATIO_FREE_BYTES = 16 << 20  # a part up to this size may have any ratio
READ_BYTES = 1 << 20


class Package:
    """An open workbook archive with a valid directory."""

    def __init__(self, path: Path, limits: ReadLimits) -> None:
        refuse_other_files(path)
        self.limits = limits
        _refuse_long_directory(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error, OverflowError) as error:
            raise damaged("its archive is incomplete or damaged") from error
        try:
            self._members = self._checked(self._zip.infolist(), path.stat().st_size)
            self._refuse_other_packages()
        except BaseException:
            self._zip.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return _plain(name) in self._members

    def size(self, name: str) -> int:
        """Return the part's unpacked size in bytes; raises FileRefused if it is missing."""
        return self._member(name).file_size

    def blocks(self, name: str) -> Generator[bytes, None, None]:
        """Yield the part's bytes in blocks and verify its checksum; raises FileRefused if it is unsafe or damaged."""
        member = self._member(name)
        if member.flag_bits & 0x1:
            raise FileRefused(
                "The workbook is encrypted. Remove the password (File, Info, Protect Workbook) and upload it again.",
                code="encrypted_file",
            )
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise unsafe_archive(f"its part {name[:80]} is packed in a way that workbooks do not use")
        if member.file_size > max(RATIO_FREE_BYTES, RATIO_MAX * member.compress_size):
            raise unsafe_archive(f"its part {name[:80]} unpacks to more than {RATIO_MAX} times its size")
        try:
            with self._zip.open(member) as stream:
                while block := stream.read(READ_BYTES):
                    yield block
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise damaged(f"its part {name[:80]} cannot be unpacked") from error
        except (ValueError, struct.error, OverflowError) as error:
            raise damaged(f"its part {name[:80]} cannot be unpacked") from error

    def _member(self, name: str) -> zipfile.ZipInfo:
        member = self._members.get(_plain(name))
        if member is None:
            raise damaged(f"its part {name[:80]} is missing")
        return member

    def _checked(self, infos: list[zipfile.ZipInfo], file_bytes: int) -> dict[str, zipfile.ZipInfo]:
        if len(infos) > MEMBERS_MAX:
            raise unsafe_archive(f"it has more than {MEMBERS_MAX} parts")
        if sum(info.file_size for info in infos) > self.limits.unpacked_bytes_max:
            raise too_large(f"it unpacks to more than {self.limits.unpacked_bytes_max:,} bytes")
        end = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            # Each member must have its own bytes: a tiny file with overlapping parts can unpack to any size.
            if info.header_offset < end:
                raise unsafe_archive("its parts overlap")
            end = info.header_offset + 30 + info.compress_size
            if end > file_bytes:
                raise damaged("its archive is incomplete")
        members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            if members.setdefault(_plain(info.filename), info) is not info:
                raise damaged(f"it has two parts {info.filename[:80]}")
        return members

    def _refuse_other_packages(self) -> None:
        names = self._members
        if "xl/workbook.xml" in names:
            return
        if "mimetype" in names or "content.xml" in names:
            raise unsupported("an OpenDocument file (.ods)")
        if any(name.endswith("workbook.bin") for name in names):
            raise unsupported("a binary workbook (.xlsb)")
        if "word/document.xml" in names:
            raise unsupported("a Word document")
        if "ppt/presentation.xml" in names:
            raise unsupported("a presentation")
        if any(name.endswith(".iwa") or name == "index.zip" for name in names):
            raise unsupported("an Apple Numbers document")
        if not any(name.endswith(("workbook.xml", ".rels")) for name in names):
            raise FileRefused(
                "This is a zip archive, but not a workbook. Take the spreadsheet out of the archive and upload that.",
                code="not_a_workbook",
            )


def _plain(name: str) -> str:
    """Normalise a part's name: writers differ in case, slashes and a leading slash."""
    return name.replace("\\", "/").lstrip("/").lower()


def _refuse_long_directory(path: Path) -> None:
    """Raise FileRefused for a huge directory: zipfile builds an object per entry before they can be counted."""
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - (1 << 16) - 22))
        tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) - end < 22:
        raise damaged("its archive is incomplete: the directory at the end is missing")
    directory_bytes = struct.unpack_from("<L", tail, end + 12)[0]
    large = tail.rfind(b"PK\x06\x06", 0, end)
    if directory_bytes == 0xFFFFFFFF and 0 <= large <= len(tail) - 48:
        directory_bytes = struct.unpack_from("<Q", tail, large + 40)[0]
    if directory_bytes > DIRECTORY_BYTES_MAX:
        raise unsafe_archive("it has too many parts")
