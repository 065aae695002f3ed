"""Files made to kill, stall or fool the reader: how each is made, and its expected outcome."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imports.workbooks import DECLARATION, MAIN, PACKAGE, RELATIONS, parts, shared_xml, sheet_xml, styles_xml, write

HEADER = "E-mail,Name,Credit\n"
GOOD = "a@x.org,Ann,1\n"
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file and its verdict: a code, or how many rows are read and how many of them cannot be."""

    name: str
    make: Callable[[Path], object]
    code: str = ""
    rows: int = 0
    bad: int = 0

    def __str__(self) -> str:
        return self.name


# -- delimited text ----------------------------------------------------------------------------------


def text(content: str | bytes) -> Callable[[Path], object]:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def packed(start: str, block: bytes, times: int) -> Callable[[Path], object]:
    """A gzip file that begins like this and goes on with one block over and over; nobody gets to its end."""

    def make(path: Path) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        first = packer.compress(start.encode()) + packer.flush(zlib.Z_FULL_FLUSH)
        again = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
        path.write_bytes(first + again * times)

    return make


def gzip_bytes(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _wide_rows(path: Path) -> None:
    """Many rows that are far too wide: what is told about them must not grow with them."""
    line = "b@x.org,B,1" + ",x" * 400 + "\n"
    path.write_text(HEADER + GOOD + line * 12_000)


CSV = [
    BadFile("nul.csv", text(b"\0" * MB), "not_text"),
    BadFile("nul-cells.csv", text(HEADER + GOOD + "b\0@x.org,Bob,1\n" * 1_000), rows=1_001),
    BadFile("one-line.csv", text("x" * (20 * MB)), "missing_columns"),
    BadFile("cell-1mb.csv", text(HEADER + GOOD + f"b@x.org,{'B' * MB},1\n"), rows=2),
    BadFile("cell-over-1mb.csv", text(HEADER + GOOD + f"b@x.org,{'B' * (MB + 1)},1\n"), rows=2, bad=1),
    BadFile("columns-100k.csv", text("x," * 100_000 + "\n" + GOOD), "too_many_columns"),
    BadFile("cells-1m.csv", text(HEADER + GOOD + "x," * MB + "\n" + GOOD), rows=3, bad=1),
    BadFile("open-quote.csv", text(HEADER + GOOD + 'b@x.org,"B' + ",1\nc@x.org,C" * 200_000), rows=200_002, bad=2),
    BadFile("quotes.csv", text(HEADER + GOOD + '"' * (2 * MB) + "\n"), rows=2),
    BadFile("open-quotes.csv", text(HEADER + GOOD + 'b@x.org,"B,1\n' * 100_000), rows=100_001, bad=100_000),
    BadFile("delimiters.csv", text("," * (5 * MB)), "empty_file"),
    BadFile("newlines.csv", text("\n" * (5 * MB)), "empty_file"),
    BadFile("returns.csv", text(HEADER + GOOD + "\r" * (5 * MB)), rows=1),
    BadFile("header-cells-1mb.csv", text((HEADER[:-1] + ("," + "h" * MB) * 20 + "\n" + GOOD) * 2), rows=3, bad=1),
    BadFile("wide-rows.csv", _wide_rows, rows=12_001, bad=12_000),
    BadFile(
        "latin.csv",
        text(HEADER.encode() + GOOD.encode() + b"\xff,\x80\x81,1\n" * 100_000),
        rows=100_001,
        bad=100_000,
    ),
    BadFile(
        "foreign.csv",
        text(HEADER.encode() + GOOD.encode() + b"\xff\xfe\xfd,\x80\x81,1\n" * 100_000),
        "encoding_unknown",
    ),
    BadFile(
        "half-utf16.csv",
        text("\ufeff".encode("utf-16-le") + HEADER.encode("utf-16-le") + b"\x00\xd8" * (MB // 4)),
        rows=1,
        bad=1,
    ),
    BadFile("marks.csv", text("\ufeff" * 10_000 + HEADER + GOOD), "missing_columns"),
    BadFile("zeros.csv.gz", packed("", b"\0" * MB, 1_000), "not_text"),
    BadFile("bomb.csv.gz", packed(HEADER, GOOD.encode() * 70_000, 1_000), "file_too_large"),
    BadFile("newlines.csv.gz", packed(HEADER, b"\n" * MB, 1_000), "file_too_large"),
    BadFile("one-line.csv.gz", packed(HEADER, b"x" * MB, 1_000), "file_too_large"),
    BadFile("members.csv.gz", text(gzip_bytes((HEADER + GOOD).encode()) + gzip_bytes(b"") * 90_000), rows=1),
    BadFile(
        "more-members.csv.gz", text(gzip_bytes((HEADER + GOOD).encode()) + gzip_bytes(b"") * 200_000), "damaged_file"
    ),
    BadFile("cut.csv.gz", text(gzip_bytes((HEADER + GOOD * 9_999).encode())[:-100]), "truncated_file"),
    BadFile("changed.csv.gz", text(gzip_bytes((HEADER + GOOD).encode())[:-8] + b"12345678"), "damaged_file"),
    BadFile("twice.csv.gz", text(gzip_bytes(gzip_bytes(b"x"))), "not_text"),
    BadFile("workbook.csv", lambda path: write(path, parts(sheet_xml(""))), "not_text"),
]


# -- workbooks ---------------------------------------------------------------------------------------

HEAD = '<row r="1"><c r="A1" t="str"><v>E-mail</v></c><c r="B1" t="str"><v>Name</v></c></row>'
LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(12)
)
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def row(number: int, name: str = "<v>Ann</v>", attributes: str = 't="str"') -> str:
    email = f'<c r="A{number}" t="str"><v>a{number}@x.org</v></c>'
    return f'<row r="{number}">{email}<c r="B{number}" {attributes}>{name}</c></row>'


def sheet(
    rows: str, *, shared: str | None = None, styles: str | None = None, **changed: str | bytes
) -> Callable[[Path], object]:
    """A workbook with these rows below a header, and some of its parts otherwise."""
    names = {"sheet": "xl/worksheets/sheet1.xml", "workbook": "xl/workbook.xml", "rels": "xl/_rels/workbook.xml.rels"}
    named = {names.get(name, name): part for name, part in changed.items()}
    return lambda path: write(path, parts(sheet_xml(HEAD + rows), shared=shared, styles=styles) | named)


def _overlapping(path: Path) -> None:
    sheet(row(2))(path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("a.bin", b"x" * 1_000)
        file.writestr("b.bin", b"x" * 1_000)
        first = file.getinfo("a.bin").header_offset
    data = bytearray(path.read_bytes())
    entry = data.rfind(b"PK\x01\x02", 0, data.rfind(b"b.bin"))
    struct.pack_into("<L", data, entry + 42, first + 1)
    path.write_bytes(data)


def _many_members(path: Path) -> None:
    """A directory of 150,000 entries, each the first over again."""
    sheet(row(2))(path)
    data = path.read_bytes()
    end = data.rfind(b"PK\x05\x06")
    start = struct.unpack_from("<L", data, end + 16)[0]
    entry = data[start : start + 46 + struct.unpack_from("<H", data, start + 28)[0]]
    record = data[end : end + 12] + struct.pack("<LLH", len(entry) * 150_000, start, 0)
    path.write_bytes(data[:start] + entry * 150_000 + record)


def _lying(path: Path) -> None:
    """A sheet that says it has ten bytes."""
    sheet(row(2))(path)
    data = bytearray(path.read_bytes())
    entry = data.rfind(b"PK\x01\x02", 0, data.rfind(b"xl/worksheets"))
    struct.pack_into("<L", data, entry + 24, 10)
    path.write_bytes(data)


def _locked(path: Path) -> None:
    sheet(row(2))(path)
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 4)
    path.write_bytes(data)


def _cut(path: Path) -> None:
    sheet("".join(map(row, range(2, 2_000))))(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _zip_in_zip(path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("0", b"\0" * (50 * MB))
    write(path, {f"{n}.zip": inner.getvalue() for n in range(16)})


def _doctype(doctype: str) -> str:
    head, mark, tail = sheet_xml(HEAD + row(2, "<v>&m;</v>")).partition("?>\n")
    return head + mark + doctype + tail


_noise = random.Random(19).randbytes(MB // 4).hex()
_long_text = (_noise * 2)[:MB]
_corner = '<row r="1048576"><c r="XFD1048576" t="str"><v>x</v></c></row>'
_formats = "".join(f'<numFmt numFmtId="{n}" formatCode="{"m" * 1_000}"/>' for n in range(164, 10_164))
_relation = f'<Relationship Id="rId1" Type="{RELATIONS}/worksheet" Target="/../../../../../etc/passwd"/>'
_relations = f'<Relationships xmlns="{PACKAGE}">{_relation}</Relationships>'

XLSX = [
    BadFile("corners.xlsx", sheet(row(2) + _corner), rows=2, bad=1),
    BadFile("bomb.xlsx", sheet("", sheet=b" " * (100 * MB)), "unsafe_archive"),
    BadFile("bomb-shared.xlsx", sheet(row(2), shared=shared_xml("<t>" + "x" * (100 * MB) + "</t>")), "unsafe_archive"),
    BadFile("overlapping.xlsx", _overlapping, "unsafe_archive"),
    BadFile("members.xlsx", _many_members, "unsafe_archive"),
    BadFile("lying.xlsx", _lying, "damaged_file"),
    BadFile("locked.xlsx", _locked, "encrypted_file"),
    BadFile("cut.xlsx", _cut, "damaged_file"),
    BadFile("zips.xlsx", _zip_in_zip, "not_a_workbook"),
    BadFile("text.xlsx", text(HEADER + GOOD), "not_a_workbook"),
    BadFile("laughs.xlsx", sheet("", sheet=_doctype(LAUGHS + "]>")), "unsafe_xml"),
    BadFile("outside.xlsx", sheet("", sheet=_doctype(OUTSIDE)), "unsafe_xml"),
    BadFile("nested.xlsx", sheet("", sheet="<a>" * MB), "damaged_file"),
    BadFile("cell-1mb.xlsx", sheet(row(2, f"<v>{_long_text}</v>")), rows=1),
    BadFile("cell-over-1mb.xlsx", sheet(row(2) + row(3, f"<v>{_long_text}x</v>")), rows=2, bad=1),
    BadFile(
        "columns-100k.xlsx",
        sheet("", sheet=sheet_xml('<row r="1">' + '<c t="str"><v>x</v></c>' * 100_000 + "</row>")),
        "too_many_columns",
    ),
    BadFile(
        "echo.xlsx",
        sheet(
            "".join(row(n, "<v>0</v>", 't="s"') for n in range(2, 100_000)), shared=shared_xml(f"<t>{_long_text}</t>")
        ),
        "file_too_large",
    ),
    BadFile(
        "formats.xlsx",
        sheet(row(2), styles=f'{DECLARATION}<styleSheet xmlns="{MAIN}"><numFmts>{_formats}</numFmts></styleSheet>'),
        rows=1,
    ),
    BadFile(
        "digits.xlsx",
        sheet(row(2) + row(3, f"<v>{'9' * MB}</v>", "") + row(4, "<v>1e999999999</v>", "")),
        rows=3,
        bad=2,
    ),
    BadFile(
        "dates.xlsx",
        sheet(
            "".join(
                row(n, f"<v>{v}</v>", 's="1"') for n, v in enumerate(("1e308", "-1e308", "NaN", "1e-320", "9" * 400), 2)
            ),
            styles=styles_xml(0, 14),
        ),
        rows=5,
        bad=2,
    ),
    BadFile(
        "far-texts.xlsx",
        sheet(
            row(2) + row(3, "<v>99999999999999999999</v>", 't="s"') + row(4, "<v>-1</v>", 't="s"'),
            shared=shared_xml("<t>x</t>"),
        ),
        rows=3,
        bad=2,
    ),
    BadFile(
        "attributes.xlsx",
        sheet("<row r='2'><c " + " ".join(f'a{n}="1"' for n in range(300_000)) + "/></row>" + row(3)),
        rows=1,
    ),
    BadFile("comment.xlsx", sheet(f"<!--{_noise * 18}-->" + row(2)), "damaged_file"),
    BadFile("attribute.xlsx", sheet(f'<row r="2" x="{_noise * 18}"/>' + row(3)), "damaged_file"),
    BadFile("comments.xlsx", sheet(("<!---->" * 8 + "<x/>") * 250_000 + row(2)), rows=1),
    BadFile("empty-rows.xlsx", sheet("".join(f'<row r="{n}"/>' for n in range(2, 150_000)) + row(150_000)), rows=1),
    BadFile("runs.xlsx", sheet(row(2, "<is>" + "<r><t>x</t></r>" * MB + "</is>", 't="inlineStr"')), "damaged_file"),
    BadFile(
        "escapes.xlsx", sheet(row(2, f"<v>{'_x0041_' * (MB // 7)}</v>") + row(3, f"<v>{'_xD800_' * 9_999}</v>")), rows=2
    ),
    BadFile(
        "wide-rows.xlsx",
        sheet("".join(f'<row r="{n}">' + "<c><v>1</v></c>" * 16_384 + "</row>" for n in range(2, 60))),
        "too_many_columns",
    ),
    BadFile(
        "sheets.xlsx",
        sheet(
            row(2),
            workbook=f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>'
            + '<sheet name="S" sheetId="1" r:id="rId1"/>' * 300_000
            + "</sheets></workbook>",
        ),
        "damaged_file",
    ),
    BadFile("elsewhere.xlsx", sheet(row(2), rels=_relations), "damaged_file"),
    BadFile("twice.xlsx", sheet(row(2) + row(2)), "damaged_file"),
]
