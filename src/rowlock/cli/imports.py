"""`rowlock imports`: list and show imports, get their errors, resume or cancel one."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError
from rowlock.cli.import_file import show_errors, show_import
from rowlock.cli.jobs import Cursor
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.imports import ImportSchema

commands = typer.Typer(no_args_is_help=True, help="Imports: list, show, get errors, resume, cancel.")

ImportId = Annotated[str, typer.Argument(metavar="ID", help="The id of the import.")]
_EXAMPLE = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"


class ImportStatus(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="imports")


@commands.command(
    "list",
    help=options.examples(
        "List imports, newest first.",
        "rowlock imports list --status FAILED --type customers",
        "rowlock imports list --limit 500 --json",
    ),
)
@asks()
async def list_(
    management: Management,
    out: Output,
    status: Annotated[
        ImportStatus | None, typer.Option(case_sensitive=False, help="Only imports with this status.")
    ] = None,
    type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only imports of this type.")] = None,
    company: Annotated[str | None, typer.Option("--company", metavar="ID", help="Only of this company.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of imports.")] = 50,
    cursor: Cursor = None,
) -> None:
    page = await management.import_jobs(type=type, status=status, company_id=company, limit=limit, cursor=cursor)
    if out.as_json:
        out.json(page)
        return
    columns = ("id", "type", "file", "status", "progress", "rows", "failed", "when", "note")
    out.table(columns, list(map(_row, page.imports)), "no imports match")
    if page.next_cursor is not None:
        out.note(f"there are more: --cursor {page.next_cursor}")


@commands.command(
    help=options.examples(
        "Show one import: the outcomes of its rows, and its first errors.", f"rowlock imports show {_EXAMPLE}"
    )
)
@asks()
async def show(management: Management, out: Output, id: ImportId) -> None:
    show_import(await management.import_job(id), out)


@commands.command(
    help=options.examples(
        "Show the errors of an import in the order of the file, or write the rows with errors to a CSV file: the "
        "columns of the file, then row, column and reason.",
        f"rowlock imports errors {_EXAMPLE}",
        f"rowlock imports errors {_EXAMPLE} --csv errors.csv",
        f"rowlock imports errors {_EXAMPLE} --limit 1000 --json",
    )
)
@asks()
async def errors(
    management: Management,
    out: Output,
    id: ImportId,
    csv: Annotated[
        str | None,
        typer.Option("--csv", metavar="FILE", help="Write the rows with errors to this file; -: standard output."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of rows.")] = 100,
    after_row: Annotated[int, typer.Option(min=0, metavar="ROW", help="Start after this row.")] = 0,
) -> None:
    if csv is not None:
        await _write(management, out, id, csv)
        return
    page = await management.import_errors(id, after_row=after_row, limit=limit)
    if out.as_json:
        out.json(page)
        return
    show_errors(page.errors, out)
    if page.next_row is not None:
        out.note(f"there are more: --after-row {page.next_row}")


@commands.command(
    help=options.examples(
        "Resume a failed or cancelled import: only unfinished chunks run again.",
        f"rowlock imports resume {_EXAMPLE}",
    )
)
@asks(needs_app=True)
async def resume(management: Management, out: Output, id: ImportId) -> None:
    found = await management.resume_import(id)
    out.tell(found, f"{found.id}  {found.file_name} is resumed, {found.status}")


@commands.command(
    help=options.examples(
        "Cancel an import that has not ended. Rows of finished chunks stay in the table.",
        f"rowlock imports cancel {_EXAMPLE}",
    )
)
@asks()
async def cancel(management: Management, out: Output, id: ImportId) -> None:
    found = await management.cancel_import(id)
    out.tell(found, f"{found.id}  {found.file_name} is {found.status}")


async def _write(management: Management, out: Output, import_id: str, file: str) -> None:
    size = 0
    parts = management.import_errors_csv(import_id)
    first = await anext(parts)  # raises ImportNotFound before a file is created
    try:
        with _opened(file) as written:
            size += written.write(first)
            async for part in parts:
                size += written.write(part)
    except OSError as error:
        raise UsageError(f"--csv {file}: {error.strerror}") from None
    if file != "-":
        out.tell({"file": file, "bytes": size}, f"{file} is written, {size:,} bytes")


def _opened(file: str) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdout.buffer) if file == "-" else Path(file).open("wb")


def _row(found: ImportSchema) -> list[object]:
    from rowlock.cli.output import ago

    summary = found.summary
    when = ago(found.finished_at or found.created_at)
    return [
        *(found.id, found.type, found.file_name, found.status, f"{found.progress} %"),
        *(f"{summary.total_rows:,}", f"{summary.failed:,}", when, found.message),
    ]
