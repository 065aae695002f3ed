"""Schemas of answers about imports, as the OpenAPI description shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from rowlock.http.schemas.base import Told
from rowlock.http.schemas.requests import EXAMPLE_ID, EXAMPLE_TIME, ImportWord


class RowErrorSchema(Told):
    """A bad cell, or a bad row."""

    row: int = Field(description="As a spreadsheet program counts: the first row of the file is 1.", examples=[7])
    column: str | None = Field(description="As the header of the file has it; null: the row as a whole.")
    code: str = Field(description="Stable: programs may rely on it.")
    value: str | None = Field(description="What was there, cut; left out where it is secret.")
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
    duplicates: int = Field(description="Rows whose key comes again further down: the last one counts.")
    failed: int


class SummarySchema(CountsSchema):
    """Where the rows went: each in exactly one."""

    error_count: int = Field(description="Bad cells and rows; a row may have several.")
    errors: list[RowErrorSchema] = Field(description="The first 100, of a single import; none in lists.")
    error_groups: list[ErrorGroupSchema] = Field(description="All, counted; of a single import.")


class ChunkSchema(CountsSchema):
    index: int = Field(description="-1: rows that could not be read at all.")
    status: Literal["waiting", "done", "failed"]
    job_id: str
    finished_at: datetime | None


class ImportSchema(Told):
    """An import."""

    id: str = Field(examples=[EXAMPLE_ID])
    job_id: str = Field(examples=[EXAMPLE_ID], description="The same: an import has the id of its first job.")
    type: str = Field(examples=["customers"])
    status: ImportWord
    progress: int = Field(description="0-10 planning, 10-99 chunks, 100 when it is over well.")
    message: str | None
    file_name: str = Field(examples=["customers.csv"])
    csv_path: str = Field(description="Where its bytes are, in the import store.")
    sha256: str
    size_bytes: int
    company_id: str | None
    project_id: str | None
    created_by_user_id: str | None = Field(description="The id of the token that brought it.")
    dry_run: bool
    sheet_name: str | None
    total_chunks: int | None = Field(description="Null until it is planned.")
    completed_chunks: int
    created_at: datetime = Field(examples=[EXAMPLE_TIME])
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime = Field(examples=[EXAMPLE_TIME])
    meta_json: Any = Field(description="How it was read and split.")
    result_json: Any = Field(
        description="The totals; of a dry run also what would change; what the finish hook returned."
    )
    error_json: Any = Field(description="Of a failed one: code, message, and what else there is to know.")
    summary: SummarySchema


class ImportWholeSchema(ImportSchema):
    chunks: list[ChunkSchema]


class ImportsSchema(Told):
    """Imports, newest first."""

    imports: list[ImportSchema]
    next_cursor: str | None = Field(description="Goes on where this page ends; null at the end.")


class ImportErrorsSchema(Told):
    errors: list[RowErrorSchema]
    next_row: int | None = Field(description="Goes on as `afterRow`; null at the end.")


class ColumnSchema(Told):
    name: str
    headers: list[str] = Field(description="What the column may be called; case, spaces and signs do not matter.")
    kind: str
    required: bool
    nullable: bool
    choices: list[str]
    secret: bool
    formats: dict[str, Any] = Field(description="How its cells may be written, where that is not the usual way.")
    accepts: str = Field(description="The same for people, in one sentence.", examples=["a date, such as 2026-01-31"])


class ImportTypeSchema(Told):
    name: str
    about: str | None = Field(description="What its importer says of itself: the first line of its docstring.")
    mode: Literal["upsert", "insert", "replace"]
    policy: Literal["partial", "all_or_nothing"]
    into: str = Field(description="The table that rows go into.")
    key: list[str]
    queue: str | None
    company_required: bool = Field(description="Whether whoever imports must name a company.")
    columns: list[ColumnSchema]


class ImportTypesSchema(Told):
    types: list[ImportTypeSchema]
