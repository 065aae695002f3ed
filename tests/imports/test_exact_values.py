"""Tables store exactly the values of the file, on every store; other values are errors of their rows."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from imports.conftest import MakeOffice, told
from imports.workbooks import one_sheet

pytestmark = pytest.mark.every_store


class Parcel(BaseModel):
    number: int
    code: str = ""


async def test_long_numbers_of_a_workbook_are_exact_or_refused(make_office: MakeOffice) -> None:
    office = await make_office(lambda app: app.importer("odd", row=Parcel, key=["number"], into="odd"))
    cells = ["1234567890123456001", "1234567890123456002", "1234567890123456003", "1.23456789012345E+18"]
    header = "".join(f'<c t="inlineStr"><is><t>{name}</t></is></c>' for name in ("number", "code"))
    rows = "".join(f"<row><c><v>{cell}</v></c><c><v>{cell}</v></c></row>" for cell in cells)

    record = await office.run(one_sheet(office.folder, f"<row>{header}</row>{rows}"), type="odd")

    assert told(record) == (4, 3, 0, 0, 0, 1)
    assert await office.table("number", "code", of="odd") == [(int(cell), cell) for cell in cells[:3]]
    (bad,) = await office.errors(record.id)
    assert [(error.column, error.code) for error in bad.errors] == [("number", "rounded"), ("code", "rounded")]
