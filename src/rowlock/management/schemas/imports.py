"""Imports: one with its chunks and errors, a page of them, import types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field

from rowlock.imports.field_help import accepts
from rowlock.imports.formats import dump_formats
from rowlock.imports.importer import ImportType
from rowlock.imports.load.stopped import STOPPED, corrected, groups_of
from rowlock.jobs.payload import loads
from rowlock.management.schemas.base import (
    EXAMPLE_ID,
    EXAMPLE_TIME,
    ImportStatusField,
    Schema,
    Time,
    plain_text,
    plain_value,
)
from rowlock.observe.redaction import Redactor
from rowlock.storage.imports import ChunkRecord, Counts, ErrorRow, ImportRecord


class RowErrorSchema(Schema):
    """A bad cell, or a bad row."""

    row: int = Field(
        description="Row number as in a spreadsheet program: the first row of the file is 1.", examples=[7]
    )
    column: str | None = Field(description="Name in the header of the file; null: the row as a whole.")
    code: str = Field(description="Stable code.")
    value: str | None = Field(description="The value, shortened; redacted if secret.")
    reason: str

    @classmethod
    def all_of(cls, rows: Sequence[ErrorRow], redact: Redactor) -> list[Self]:
        """The errors of these rows, in one list."""
        return [
            cls(
                row=error.row,
                column=error.column,
                code=error.code,
                value=error.value,
                reason=redact.text(error.reason),
            )
            for row in rows
            for error in row.errors
        ]


class ErrorGroupSchema(Schema):
    column: str | None
    code: str
    count: int


class CountsSchema(Schema):
    total_rows: int
    inserted: int
    updated: int
    unchanged: int
    duplicates: int = Field(description="Rows whose key occurs again later in the file; the last one is loaded.")
    failed: int


def _counts(counts: Counts) -> dict[str, int]:
    """Return the fields of CountsSchema."""
    return {
        "total_rows": counts.rows,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "duplicates": counts.duplicate,
        "failed": counts.invalid,
    }


class ErrorCountsSchema(CountsSchema):
    error_count: int = Field(description="Errors of cells and rows; a row can have several.")

    @classmethod
    def of(cls, record: ImportRecord, **more: Any) -> Self:
        fields = _counts(record.counts) | {"error_count": record.error_count} | corrected(record)
        return cls(**fields, **more)


class SummarySchema(ErrorCountsSchema):
    """Where the rows went: each in exactly one."""

    errors: list[RowErrorSchema] = Field(description="The first 100 errors of a single import; empty in lists.")
    error_groups: list[ErrorGroupSchema] = Field(
        description="All errors of a single import, counted by column and code."
    )


class ChunkSchema(CountsSchema):
    index: int = Field(description="-1: rows that could not be read.")
    status: Literal["waiting", "done", "failed"]
    job_id: str
    finished_at: Time | None

    @classmethod
    def of(cls, chunk: ChunkRecord, *, failed: bool = False) -> Self:
        """A chunk, with status failed if its job is a dead letter."""
        return cls(
            index=chunk.index,
            status="failed" if failed else chunk.status.value,
            job_id=chunk.job_id,
            finished_at=chunk.finished_at,
            **_counts(chunk.counts),
        )


class ImportSchema(Schema):
    """An import."""

    id: str = Field(examples=[EXAMPLE_ID])
    job_id: str = Field(examples=[EXAMPLE_ID], description="The same id: an import has the id of its parent job.")
    type: str = Field(examples=["customers"])
    status: ImportStatusField
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
    created_at: Time = Field(examples=[EXAMPLE_TIME])
    started_at: Time | None
    finished_at: Time | None
    updated_at: Time = Field(examples=[EXAMPLE_TIME])
    meta_json: Any = Field(description="How the file was read and split.")
    result_json: Any = Field(
        description="The totals; of a dry run also what would change; what the finish hook returned."
    )
    error_json: Any = Field(description="Of a failed import: code, message and details.")
    summary: SummarySchema

    @classmethod
    def of(
        cls,
        record: ImportRecord,
        redact: Redactor,
        parts: Sequence[ChunkRecord] = (),
        errors: Sequence[RowErrorSchema] = (),
        **more: Any,
    ) -> Self:
        """An import; `error_groups` has the errors of the chunks `parts` and of the chunk that stopped the import."""
        options = loads(record.options)
        groups = Counter[tuple[str | None, str]]()
        for group in (*(group for chunk in parts for group in chunk.groups), *groups_of(record)):
            groups[group.column, group.code] += group.count
        counted = [ErrorGroupSchema(column=c, code=code, count=n) for (c, code), n in groups.most_common()]
        return cls(
            id=record.id,
            job_id=record.id,
            type=record.type,
            status=record.status,
            progress=record.progress,
            message=plain_text(_message(record), redact),
            file_name=record.file_name,
            csv_path=record.path,
            sha256=record.sha256,
            size_bytes=record.size_bytes,
            company_id=record.company_id,
            project_id=record.project_id,
            created_by_user_id=record.user_id,
            dry_run=bool(options.get("dryRun")),
            sheet_name=options.get("sheet"),
            total_chunks=record.total_chunks,
            completed_chunks=record.completed_chunks,
            created_at=record.created_at,
            started_at=record.started_at,
            finished_at=record.finished_at,
            updated_at=record.updated_at,
            meta_json=loads(record.meta),
            result_json=plain_value(record.result, redact),
            error_json=_error(record, redact),
            summary=SummarySchema.of(record, errors=list(errors), error_groups=counted),
            **more,
        )


def _message(record: ImportRecord) -> str | None:
    """Return the import's message, or how many of its chunks are done."""
    if record.message is None and record.total_chunks is not None and not record.status.final:
        return f"loading: {record.completed_chunks} of {record.total_chunks} chunks are done"
    return record.message


def _error(record: ImportRecord, redact: Redactor) -> Any:
    """Return why the import failed, without the part that the summary and the list of errors show."""
    found = plain_value(record.error, redact)
    if not isinstance(found, dict):
        return found
    message = {"message": redact.message(found["message"])} if isinstance(found.get("message"), str) else {}
    return {name: value for name, value in found.items() if name != STOPPED} | message


class ImportWholeSchema(ImportSchema):
    chunks: list[ChunkSchema]


class ImportsSchema(Schema):
    """Imports, newest first."""

    imports: list[ImportSchema]
    next_cursor: str | None = Field(description="Cursor of the next page; null at the end.")


class ImportChangeSchema(Schema):
    """An import in an event: its progress, and the counts of its rows so far."""

    id: str
    type: str
    status: ImportStatusField
    progress: int
    message: str | None
    file_name: str
    company_id: str | None
    total_chunks: int | None
    completed_chunks: int
    summary: ErrorCountsSchema
    changed_at: Time

    @classmethod
    def of(cls, record: ImportRecord, redact: Redactor) -> Self:
        return cls(
            id=record.id,
            type=record.type,
            status=record.status,
            progress=record.progress,
            message=plain_text(_message(record), redact),
            file_name=record.file_name,
            company_id=record.company_id,
            total_chunks=record.total_chunks,
            completed_chunks=record.completed_chunks,
            summary=ErrorCountsSchema.of(record),
            changed_at=record.updated_at,
        )


class ImportErrorsSchema(Schema):
    errors: list[RowErrorSchema]
    next_row: int | None = Field(description="`afterRow` of the next page; null at the end.")


class ColumnSchema(Schema):
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


class ImportTypeSchema(Schema):
    name: str
    about: str | None = Field(description="The first line of the importer's docstring.")
    mode: Literal["upsert", "insert", "replace"]
    policy: Literal["partial", "all_or_nothing"]
    into: str = Field(description="The table that rows go into.")
    key: list[str]
    queue: str | None
    company_required: bool = Field(description="Whether imports of this type require a company.")
    columns: list[ColumnSchema]

    @classmethod
    def of(cls, declared: ImportType) -> Self:
        return cls(
            name=declared.name,
            about=declared.about,
            mode=declared.mode.value,
            policy=declared.policy.value,
            into=declared.into,
            key=list(declared.key),
            queue=declared.queue,
            company_required=declared.company is not None and declared.importer.default_company is None,
            columns=[
                ColumnSchema(
                    name=field.name,
                    headers=list(field.headers),
                    kind=field.kind.value,
                    required=field.required,
                    nullable=field.nullable,
                    choices=list(field.choices),
                    secret=field.secret,
                    formats=dump_formats(field.formats),
                    accepts=accepts(field),
                )
                for field in declared.fields
            ],
        )


class ImportTypesSchema(Schema):
    types: list[ImportTypeSchema]
