"""Schemas of answers about imports, as the OpenAPI description shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from rowlock.http.schemas.base import Told
from rowlock.http.schemas.requests import EXAMPLE_ID, EXAMPLE_TIME, ImportWord


class RowErrorSchema(Told):
    """A bad cell, or a bad row."""

    row: int = Field(
        description="Row number as in a spreadsheet program: the first row of the file is 1.", examples=[7]
    )
    column: str | None = Field(description="Name in the header of the file; null: the row as a whole.")
    code: str = Field(description="Stable code.")
    value: str | None = Field(description="The value, shortened; redacted if secret.")
    reason: str


class ErrorGroupSchema(Told):
    column: str | None
    code: str
    count: int


class CountsSchema(Told):
    total_rows: int
    inserted: int
    updated: int
    unchanged: int
    duplicates: int = Field(description="Rows whose key occurs again later in the file; the last one is loaded.")
    failed: int


class SummarySchema(CountsSchema):
    """Where the rows went: each in exactly one."""

    error_count: int = Field(description="Errors of cells and rows; a row can have several.")
    errors: list[RowErrorSchema] = Field(description="The first 100 errors of a single import; empty in lists.")
    error_groups: list[ErrorGroupSchema] = Field(
        description="All errors of a single import, counted by column and code."
    )


class ChunkSchema(CountsSchema):
    index: int = Field(description="-1: rows that could not be read.")
    status: Literal["waiting", "done", "failed"]
    job_id: str
    finished_at: datetime | None


class ImportSchema(Told):
    """An import."""

    id: str = Field(examples=[EXAMPLE_ID])
    job_id: str = Field(examples=[EXAMPLE_ID], description="The same id: an import has the id of its parent job.")
    type: str = Field(examples=["customers"])
    status: ImportWord
    progress: int = Field(description="0-10: planning; 10-99: chunks; 100: succeeded.")
    message: str | None
    file_name: str = Field(examples=["customers.csv"])
    csv_path: str = Field(description="Path of the file in the import store.")
    sha256: str
    size_bytes: int
    company_id: str | None
    project_id: str | None
    created_by_user_id: str | None = Field(description="The id of the token that created it.")
    dry_run: bool
    sheet_name: str | None
    total_chunks: int | None = Field(description="Null until the file is read.")
    completed_chunks: int
    created_at: datetime = Field(examples=[EXAMPLE_TIME])
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime = Field(examples=[EXAMPLE_TIME])
    meta_json: Any = Field(description="How the file was read and split.")
    result_json: Any = Field(
        description="The totals; of a dry run also what would change; what the finish hook returned."
    )
    error_json: Any = Field(description="Of a failed import: code, message and details.")
    summary: SummarySchema


class ImportWholeSchema(ImportSchema):
    chunks: list[ChunkSchema]


class ImportsSchema(Told):
    """Imports, newest first."""

    imports: list[ImportSchema]
    next_cursor: str | None = Field(description="Cursor of the next page; null at the end.")


class ImportErrorsSchema(Told):
    errors: list[RowErrorSchema]
    next_row: int | None = Field(description="`afterRow` of the next page; null at the end.")


class ColumnSchema(Told):
    name: str
    headers: list[str] = Field(description="Accepted names of the column; case, spaces and punctuation are ignored.")
    kind: str
    required: bool
    nullable: bool
    choices: list[str]
    secret: bool
    formats: dict[str, Any] = Field(description="The declared formats of its cells, if they are not the default.")
    accepts: str = Field(
        description="Field help: the accepted values in one sentence.", examples=["a date, such as 2026-01-31"]
    )


class ImportTypeSchema(Told):
    name: str
    about: str | None = Field(description="The first line of the importer's docstring.")
    mode: Literal["upsert", "insert", "replace"]
    policy: Literal["partial", "all_or_nothing"]
    into: str = Field(description="The table that rows go into.")
    key: list[str]
    queue: str | None
    company_required: bool = Field(description="Whether imports of this type require a company.")
    columns: list[ColumnSchema]


class ImportTypesSchema(Told):
    types: list[ImportTypeSchema]
