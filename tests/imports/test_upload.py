"""Receiving a file: its type, its size limit, and that refused files leave nothing behind."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
import threading
import tracemalloc
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import pytest

from rowlock.errors import FileRefused, StoreUnavailable
from rowlock.imports.intake.file_type import FileKind, clean_name, kind_of
from rowlock.imports.intake.upload import Incoming, Received, file_size, read_file, receive
from rowlock.settings import Settings, load
from rowlock.storage.blobs import Blobs

CSV = b"email,name\r\nada@example.org,Ada\r\n"


def ole(*names: str) -> bytes:
    """The beginning of a compound file that holds streams of these names."""
    header = bytearray(512)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    header[30:32] = (9).to_bytes(2, "little")
    header[48:52] = (200).to_bytes(4, "little")  # far behind the first bytes that are looked at
    entries = b"".join(name.encode("utf-16-le").ljust(64, b"\0") + bytes(64) for name in ("Root Entry", *names))
    return bytes(header) + bytes(200 * 512) + entries


def zipped(*names: str, first: bytes = b"x") -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, first)
    return data.getvalue()


WORKBOOK = zipped("[Content_Types].xml", "_rels/.rels", "xl/workbook.xml")


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(str(tmp_path / "files"))


def left(blobs: Blobs) -> list[str]:
    return sorted(path.name for path in blobs.scratch.iterdir())


async def pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def taken(
    blobs: Blobs, name: str, data: bytes, settings: Settings | None = None, size: int = 100_000
) -> Received:
    async with Incoming(blobs, name, settings or load()) as incoming:
        received = await receive(pieces(data, size), incoming)
        assert received.path.read_bytes() == data
        return received


async def test_a_file_is_on_disk_with_its_hash_and_gone_unless_it_is_put(blobs: Blobs) -> None:
    data = CSV * 100_000
    async with Incoming(blobs, "customers.csv", load()) as incoming:
        received = await receive(pieces(data), incoming)
        assert (received.name, received.kind, received.size_bytes) == ("customers.csv", FileKind.CSV, len(data))
        assert received.sha256 == hashlib.sha256(data).hexdigest()
        await blobs.put_file("imports/1/source.csv", received.path)
    assert left(blobs) == []
    assert await blobs.get("imports/1/source.csv") == data
    await taken(blobs, "customers.csv", CSV)
    assert left(blobs) == []


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.csv", CSV, FileKind.CSV),
        ("A.CSV", CSV, FileKind.CSV),
        ("a.tsv", CSV, FileKind.CSV),
        ("a.txt", CSV, FileKind.CSV),
        ("a.csv", b"x", FileKind.CSV),
        ("a.csv", b"\xef\xbb\xbf" + CSV, FileKind.CSV),
        ("a.csv", b"\xff\xfe" + CSV.decode().encode("utf-16-le"), FileKind.CSV),
        ("a.csv", CSV.decode().encode("utf-16-be"), FileKind.CSV),
        ("a.csv", "naïve,größe\n".encode("cp1252"), FileKind.CSV),
        ("a.csv", b"a,b\x00c\n1,2\n", FileKind.CSV),  # a zero byte costs its record, not the file
        ("a.csv", b"<5,>7\n1,2\n", FileKind.CSV),
        ("a.csv", b"{id},[name]\n1,2\n", FileKind.CSV),
        ("a.csv.gz", gzip.compress(CSV, mtime=0), FileKind.CSV_GZ),
        ("a.tsv.gz", gzip.compress(CSV * 50_000, mtime=0), FileKind.CSV_GZ),
        ("a.xlsx", WORKBOOK, FileKind.XLSX),
        ("a.xlsm", WORKBOOK, FileKind.XLSX),
        ("a.xlsx", zipped("[Content_Types].xml", "xl/embeddings/Sheet1.xlsx", "xl/workbook.xml"), FileKind.XLSX),
        ("a.xlsx", zipped("xl/workbook.xml", "xl/embeddings/1.docx", first=zipped("word/document.xml")), FileKind.XLSX),
    ],
)
async def test_what_can_be_imported_is_taken(blobs: Blobs, name: str, data: bytes, kind: FileKind) -> None:
    assert (await taken(blobs, name, data)).kind is kind
    assert (await taken(blobs, name, data, size=1)).sha256 == hashlib.sha256(data).hexdigest()


REFUSED = [
    ("a.csv", b"", "file_empty", "empty"),
    ("a.xlsx", b"", "file_empty", "empty"),
    ("a.xlsx", CSV, "file_content_mismatch", "a text file, although its name ends in .xlsx"),
    ("a.csv", WORKBOOK, "file_content_mismatch", "an Excel workbook, although its name ends in .csv; name it .xlsx"),
    ("a.csv.gz", CSV, "file_content_mismatch", "a text file, although its name ends in .csv.gz; leave out the .gz"),
    ("a.csv", gzip.compress(CSV), "file_content_mismatch", "a gzip file"),
    ("a.xlsx", gzip.compress(CSV), "file_content_mismatch", "although its name ends in .xlsx"),
    ("a.csv.gz", gzip.compress(WORKBOOK), "file_content_mismatch", "an Excel workbook"),
    ("a.csv.gz", b"\x1f\x8b\x08\x00nonsense" * 20, "file_damaged", "damaged"),
    ("a.xlsx", ole("EncryptionInfo", "EncryptedPackage"), "file_encrypted", "protected with a password"),
    ("a.csv", ole("EncryptionInfo", "EncryptedPackage"), "file_encrypted", "protected with a password"),
    ("a.xlsx", ole("Workbook"), "file_old_format", "Excel 97-2003"),
    ("a.csv", ole("Workbook"), "file_content_mismatch", "an Office document"),
    ("a.xls", CSV, "file_old_format", "save it as .xlsx or .csv"),
    ("a.xlsx", b"%PDF-1.7\n" + bytes(100), "file_content_mismatch", "a PDF document"),
    ("a.csv", b"%PDF-1.7\n" + bytes(100), "file_content_mismatch", "a PDF document"),
    ("a.csv", b"\x89PNG\r\n\x1a\n" + bytes(100), "file_content_mismatch", "an image"),
    ("a.csv", b"\r\n <!DOCTYPE html><html>", "file_content_mismatch", "a web page"),
    ("a.xlsx", b"<html><table>", "file_content_mismatch", "a web page"),
    ("a.csv", b'<?xml version="1.0"?><x/>', "file_content_mismatch", "an XML file"),
    ("a.csv", b'[{"a": 1}]', "file_content_mismatch", "a JSON file"),
    ("a.csv", b'{"a": 1}', "file_content_mismatch", "a JSON file"),
    ("a.csv", b"PAR1" + bytes(100), "file_content_mismatch", "a Parquet file"),
    ("a.csv", bytes(range(32)) * 10, "file_content_mismatch", "not a text file"),
    ("a.xlsx", zipped("word/document.xml"), "file_content_mismatch", "a Word document"),
    ("a.xlsx", zipped("mimetype", first=b"application/x"), "file_content_mismatch", "an OpenDocument file"),
    ("a.xlsx", zipped("xl/workbook.bin"), "file_content_mismatch", "a binary workbook"),
    ("a.xlsx", zipped("customers.csv"), "file_content_mismatch", "a zip archive"),
    ("a.csv", zipped("customers.csv"), "file_content_mismatch", "a zip archive"),
    ("a.pdf", b"%PDF-1.7", "file_type_unknown", "only .xlsx"),
    ("a.xlsx.gz", b"x", "file_type_unknown", "only .xlsx"),
    ("a", CSV, "file_type_unknown", "only .xlsx"),
    (".csv", CSV, "file_type_unknown", "only .xlsx"),
    ("a.csv.exe", CSV, "file_type_unknown", "only .xlsx"),
]


@pytest.mark.parametrize(("name", "data", "code", "told"), REFUSED, ids=[f"{n}-{t[:20]}" for n, _, _, t in REFUSED])
async def test_what_is_not_what_it_says_is_refused_by_its_right_name(
    blobs: Blobs, name: str, data: bytes, code: str, told: str
) -> None:
    for size in (100_000, 7):
        with pytest.raises(FileRefused) as refused:
            await taken(blobs, name, data, size=size)
        assert refused.value.code == code
        assert told in str(refused.value)
        assert left(blobs) == []


@pytest.mark.parametrize(("name", "data"), [("a.csv", CSV), ("a.xlsx", WORKBOOK)])
async def test_a_file_may_be_as_large_as_the_limit_of_its_kind_and_no_larger(
    blobs: Blobs, name: str, data: bytes
) -> None:
    limits = {"import_csv_bytes_max": 10_000, "import_xlsx_bytes_max": 10_000}
    await taken(blobs, name, data.ljust(10_000, b"\n"), load(**limits), 999)
    with pytest.raises(FileRefused) as refused:
        await taken(blobs, name, data.ljust(10_001, b"\n"), load(**limits), 999)
    assert refused.value.code == "file_too_large"
    assert "10,000 bytes" in str(refused.value)
    assert left(blobs) == []


async def test_each_kind_has_its_own_limit(blobs: Blobs) -> None:
    settings = load(import_csv_bytes_max=100, import_xlsx_bytes_max=1_000)
    await taken(blobs, "a.xlsx", WORKBOOK.ljust(900, b"\0"), settings)
    with pytest.raises(FileRefused, match="larger"):
        await taken(blobs, "a.csv", CSV * 10, settings)


async def test_a_file_that_is_something_else_is_refused_before_it_is_all_there(blobs: Blobs) -> None:
    async with Incoming(blobs, "a.xlsx", load()) as incoming:
        with pytest.raises(FileRefused, match="a text file"):
            await incoming.write(CSV * 10_000)


async def test_memory_does_not_grow_with_the_file(blobs: Blobs) -> None:
    async def long() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield CSV * 2_000

    async with Incoming(blobs, "a.csv", load()) as incoming:
        tracemalloc.start()
        try:
            received = await receive(long(), incoming)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert received.size_bytes == 1_000 * 2_000 * len(CSV)
    assert peak < 8_000_000


async def test_an_interrupted_upload_leaves_nothing(blobs: Blobs) -> None:
    async with Incoming(blobs, "a.csv", load()) as incoming:
        await incoming.write(CSV * 100_000)
        assert len(left(blobs)) == 1
    assert left(blobs) == []

    async def cancelled() -> None:
        async with Incoming(blobs, "a.csv", load()) as incoming:
            await incoming.write(CSV * 100_000)
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(cancelled())
    while not left(blobs):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert left(blobs) == []


async def test_who_is_cancelled_while_a_thread_opens_the_file_leaves_nothing(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, opening, go_on = Path.open, threading.Event(), threading.Event()
    opened: list[IO[Any]] = []

    def slow(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if mode != "xb":
            return real(self, mode, *args, **more)
        opening.set()
        go_on.wait(30)
        opened.append(real(self, mode, *args, **more))
        return opened[0]

    monkeypatch.setattr(Path, "open", slow)

    async def cancelled() -> None:
        async with Incoming(blobs, "a.csv", load()) as incoming:
            await incoming.write(CSV * 100_000)

    task = asyncio.create_task(cancelled())
    await asyncio.to_thread(opening.wait, 30)
    task.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    await asyncio.gather(task, return_exceptions=True)
    assert left(blobs) == []
    assert opened[0].closed


async def test_a_full_disk_is_told_and_leaves_nothing(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def full(self: Path, mode: str = "r", *args: object, **more: object) -> object:
        return real(Path("/dev/full"), "wb", buffering=0) if mode == "xb" else real(self, mode, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StoreUnavailable, match="no space left"):
        await taken(blobs, "a.csv", CSV)
    assert left(blobs) == []


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a.csv", "a.csv"),
        ("C:\\Users\\ada\\a.csv", "a.csv"),
        ("../../etc/a.csv", "a.csv"),
        (" Größen 2026.csv ", "Größen 2026.csv"),
    ],
)
def test_a_name_loses_its_folders(given: str, name: str) -> None:
    assert clean_name(given) == name


@pytest.mark.parametrize("given", ["", " ", "..", "a/", "a\n.csv", "a\0.csv", "x" * 256, "\u202ea.csv"])
def test_what_is_no_name_is_refused(given: str) -> None:
    with pytest.raises(FileRefused) as refused:
        clean_name(given)
    assert refused.value.code == "file_name_bad"


def test_a_name_says_which_kind() -> None:
    assert kind_of("a.b.csv") is FileKind.CSV
    assert (FileKind.CSV_GZ.family, FileKind.XLSX.family) == ("csv", "xlsx")


async def test_a_file_here_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="cannot be read"):
        _ = [part async for part in read_file(tmp_path / "none.csv")]
    with pytest.raises(FileRefused, match="cannot be read"):
        file_size(tmp_path / "none.csv")
    (tmp_path / "a.csv").write_bytes(CSV)
    assert b"".join([part async for part in read_file(tmp_path / "a.csv")]) == CSV
    assert file_size(tmp_path / "a.csv") == len(CSV)
    assert os.listdir(tmp_path) == ["a.csv"]
