"""Workbooks for tests: raw XML in a zip, for files that no library would write, and their values."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rowlock.imports.read.limits import ReadLimits
from rowlock.imports.read.source import BadRecord, CellKind
from rowlock.imports.read.workbook import open_workbook

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STRICT_MAIN = "http://purl.oclc.org/ooxml/spreadsheetml/main"
STRICT_RELATIONS = "http://purl.oclc.org/ooxml/officeDocument/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

TEXT, NUMBER, DATE, DATETIME, TIME, BOOL, ERROR, FORMULA = CellKind
Cell = tuple[CellKind, str]


def sheet_xml(rows: str, *, before: str = "", after: str = "", main: str = MAIN) -> str:
    """A worksheet part around the XML of its rows."""
    return f'{DECLARATION}<worksheet xmlns="{main}">{before}<sheetData>{rows}</sheetData>{after}</worksheet>'


def shared_xml(*items: str) -> str:
    """A part of shared strings, each the XML inside its <si>."""
    return f'{DECLARATION}<sst xmlns="{MAIN}">' + "".join(f"<si>{item}</si>" for item in items) + "</sst>"


def styles_xml(*formats: str | int) -> str:
    """Cell styles 0, 1, …, each with a built-in format id or a format code."""
    custom = [(164 + at, code) for at, code in enumerate(formats) if isinstance(code, str)]
    ids = {code: number for number, code in custom}
    escape = str.maketrans({"&": "&amp;", '"': "&quot;", "<": "&lt;"})
    codes = "".join(f'<numFmt numFmtId="{n}" formatCode="{code.translate(escape)}"/>' for n, code in custom)
    cells = "".join(f'<xf numFmtId="{ids[f] if isinstance(f, str) else f}"/>' for f in formats)
    return (
        f'{DECLARATION}<styleSheet xmlns="{MAIN}"><numFmts>{codes}</numFmts>'
        f'<cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs>{cells}</cellXfs></styleSheet>'
    )


def parts(
    sheet: str,
    *,
    shared: str | None = None,
    styles: str | None = None,
    properties: str = "",
    strict: bool = False,
) -> dict[str, str | bytes]:
    """The parts of a workbook with one sheet, "Data"."""
    main, relations = (STRICT_MAIN, STRICT_RELATIONS) if strict else (MAIN, RELATIONS)
    book: dict[str, str | bytes] = {
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="rId1" Type="{relations}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'{DECLARATION}<workbook xmlns="{main}" xmlns:r="{relations}">{properties}'
        '<sheets><sheet name="Data" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/worksheets/sheet1.xml": sheet,
    }
    others = ""
    if shared is not None:
        others += f'<Relationship Id="rId2" Type="{relations}/sharedStrings" Target="sharedStrings.xml"/>'
        book["xl/sharedStrings.xml"] = shared
    if styles is not None:
        others += f'<Relationship Id="rId3" Type="{relations}/styles" Target="/xl/styles.xml"/>'
        book["xl/styles.xml"] = styles
    book["xl/_rels/workbook.xml.rels"] = (
        f'<Relationships xmlns="{PACKAGE}"><Relationship Id="rId1" Type="{relations}/worksheet" '
        f'Target="worksheets/sheet1.xml"/>{others}</Relationships>'
    )
    return book


def write(path: Path, book: Mapping[str, str | bytes], *, level: int | None = None) -> Path:
    """Zip the parts, at this level of compression."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as file:
        for name, data in book.items():
            file.writestr(name, data)
    return path


def one_sheet(
    folder: Path,
    rows: str,
    *,
    shared: str | None = None,
    styles: str | None = None,
    properties: str = "",
    level: int | None = None,
) -> Path:
    """A workbook of one sheet with these rows."""
    book = parts(sheet_xml(rows), shared=shared, styles=styles, properties=properties)
    return write(folder / "book.xlsx", book, level=level)


@dataclass(slots=True)
class Found:
    """Everything that was read from a sheet."""

    rows: dict[int, list[Cell]]
    bad: list[BadRecord]
    notices: list[str]

    @property
    def texts(self) -> dict[int, list[str]]:
        return {row: [text for _, text in cells] for row, cells in self.rows.items()}


def read(
    path: Path, *, width: int = 1, header_row: int = 0, sheet: str | None = None, limits: ReadLimits | None = None
) -> Found:
    """All rows below the header row, by their numbers."""
    source = open_workbook(path, sheet=sheet, limits=limits or ReadLimits())
    rows: dict[int, list[Cell]] = {}
    bad: list[BadRecord] = []
    try:
        for batch in source.batches(header_row, width):
            assert batch.frame.columns == ["row", *(f"c{i}" for i in range(width)), *(f"k{i}" for i in range(width))]
            bad += batch.bad
            for values in batch.frame.iter_rows():
                texts, kinds = values[1 : 1 + width], values[1 + width :]
                rows[values[0]] = [(CellKind(kind), text) for kind, text in zip(kinds, texts, strict=True)]
        return Found(rows, bad, source.notices)
    finally:
        source.close()


def cells_of(folder: Path, *cells: str, styles: str | None = None, shared: str | None = None) -> list[Cell]:
    """Return the values of cells, each given as the XML after `<c`, one per row; the file is read in both ways."""
    rows = "".join(f'<row r="{n}"><c r="A{n}"{cell}</row>' for n, cell in enumerate(cells, 1))
    fast = read(one_sheet(folder, rows, styles=styles, shared=shared))
    slow = read(one_sheet(folder, f"<!-- -->{rows}", styles=styles, shared=shared))
    assert fast == slow
    assert not fast.bad, fast.bad
    return [fast.rows.get(n, [(TEXT, "")])[0] for n in range(1, len(cells) + 1)]
