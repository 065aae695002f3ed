"""A site with importers, files to send to it, and imports in the state that a test needs."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel

from rowlock import Rowlock
from rowlock.storage.imports import ChunkResult, Counts, ErrorGroup, ErrorRow, Plan, PlannedChunk, RowError, Started
from web.site import Site

CSV = b"email,name\r\nada@example.org,Ada\r\n=cmd,Eve\r\n"
CSV_UPLOAD = "/api/v1/imports/csv/upload"
XLSX_UPLOAD = "/api/v1/imports/xlsx/upload"
TYPE = {"content-type": "text/csv"}


class Customer(BaseModel):
    email: str
    name: str | None = None


def declare_importers(app: Rowlock) -> None:
    app.importer("customers", row=Customer, key=["email"], into="web_customers")
    app.importer("everyone", row=Customer, key=["email"], into="web_everyone", mode="replace")


def declare_owned(app: Rowlock) -> None:
    """An importer whose rows belong to companies."""
    app.importer("owned", row=Customer, key=["email"], into="web_owned", company="company_id")


def workbook() -> bytes:
    """What looks like one from outside."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in ("[Content_Types].xml", "xl/workbook.xml", "xl/worksheets/sheet1.xml"):
            archive.writestr(name, "<x/>")
    return data.getvalue()


def files(site: Site) -> list[str]:
    """All that is in the import store, half-received files too."""
    root = Path(site.app.settings.import_store)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def form(
    site: Site,
    data: bytes = CSV,
    name: str = "customers.csv",
    token: str = "operator",
    path: str = CSV_UPLOAD,
    **fields: str,
) -> httpx.Response:
    return await site.post(path, token=token, files={"file": (name, data)}, data=fields)


async def raw(
    site: Site, data: Any = CSV, token: str = "operator", path: str = CSV_UPLOAD, **asked: str
) -> httpx.Response:
    asked = {"filename": "customers.csv", "type": "customers"} | asked
    media = "text/csv" if path == CSV_UPLOAD else "application/octet-stream"
    return await site.post(path, token=token, content=data, params=asked, headers={"content-type": media})


async def imported(site: Site, **asked: str) -> str:
    """The id of an import that was taken."""
    answer = await raw(site, **{"force": "true"} | asked)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def half_done(site: Site, import_id: str) -> None:
    """Plan the import in two chunks, the first of which is done: one row in, two refused."""
    store = site.app.store
    assert await store.start_import(import_id, "reading") is Started.STARTED
    new = site.app.engine.builder.new
    jobs = [new("rowlock.import", {"kind": "chunk", "importJobId": import_id, "chunkIndex": i}) for i in (0, 1)]
    meta = json.dumps({"header": ["E-mail", "Name"], "rows": 5, "folder": f"imports/{import_id}/1"})
    errors = [
        ErrorRow(3, [RowError(3, "E-mail", "email", "not an e-mail address", "=cmd")], ["=cmd", "Eve"]),
        ErrorRow(
            4,
            [RowError(4, "E-mail", "missing", "is missing"), RowError(4, "Name", "too_long", "too long", "x")],
            ["", "x"],
        ),
    ]
    groups = [ErrorGroup("E-mail", "email", 1), ErrorGroup("E-mail", "missing", 1), ErrorGroup("Name", "too_long", 1)]
    async with store.transaction() as transaction:
        assert await transaction.plan_import(
            import_id, Plan([PlannedChunk(jobs[0], 3), PlannedChunk(jobs[1], 2)], meta), job_id=import_id
        )
    async with store.transaction() as transaction:
        counts = Counts(rows=3, inserted=1, invalid=2)
        assert await transaction.end_chunk(import_id, 0, ChunkResult(counts, groups, errors)) is not None
