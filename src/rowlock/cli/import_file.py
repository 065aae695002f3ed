"""`rowlock import`: import a file into its table, locally or through a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.imports import ImportSchema, ImportWholeSchema, RowErrorSchema


def register(app: typer.Typer) -> None:
    app.command(
        "import",
        help=options.examples(
            "Import a CSV file or a workbook. The output starts with the id of the import, which workers run; --wait "
            "waits for the end. Exit code 1 if the file is refused or, with --wait, the import fails.",
            "rowlock import customers.csv --type customers --wait",
            'rowlock import Accounts-Payable.xlsx --sheet "AP Data" --type ap',
            "rowlock import customers.csv --dry-run --wait",
            "rowlock import customers.csv --server https://jobs.example.org --token-file ~/.rowlock-token --wait",
        ),
    )(import_)


@asks(create=True, needs_app=True)
async def import_(
    management: Management,
    out: Output,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .csv, .tsv, .csv.gz or .xlsx file.")],
    type: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="The import type (default: from the manifest, by file name)."),
    ] = None,
    sheet: Annotated[
        str | None,
        typer.Option("--sheet", metavar="NAME", help="The sheet of a workbook (default: from the manifest)."),
    ] = None,
    company: Annotated[
        str | None, typer.Option("--company", metavar="ID", help="The company that the import belongs to.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", metavar="ID", help="The project that the import belongs to.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Load nothing; show what would change.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Import the file even if it was imported before.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it ends, and show the result.")] = False,
    wait_seconds: Annotated[float, typer.Option(min=0.0, help="Time limit of --wait in seconds.")] = 86_400.0,
) -> int:
    path, size = _found(file)
    with out.progress(f"uploading {path.name}", size) as advance:
        found = await management.import_file(
            path,
            type=type,
            sheet=sheet,
            company_id=company,
            project_id=project,
            force=force,
            dry_run=dry_run,
            sent=advance,
        )
    if not wait:
        out.tell(found, f"{found.id}  {found.file_name} as {found.type}, {found.status}")
        return 0
    whole = await _over(management, found, wait_seconds, out)
    show_import(whole, out)
    return 0 if whole.status == "SUCCEEDED" else 1


def _found(file: str) -> tuple[Path, int]:
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{file}: no such file")
    return path, path.stat().st_size


async def _over(management: Management, found: ImportSchema, seconds: float, out: Output) -> ImportWholeSchema:
    """Wait `seconds` at most until the import is over, with a progress line; returns its last state."""
    from rowlock.cli.unserved import watching_workers
    from rowlock.management import waiting
    from rowlock.storage.imports import ATTEMPT_FAILED

    shown, said = 0, ""

    async def queue() -> str:
        return str((await management.job(found.id)).queue)

    with out.progress(f"importing {found.file_name}", 100) as advance:

        def seen(look: ImportWholeSchema) -> None:
            nonlocal shown, said
            if look.progress > shown:
                advance(look.progress - shown)
                shown = look.progress
            message = look.message or ""
            if message != said and message.startswith(ATTEMPT_FAILED):
                out.note(message)
                said = message

        async with watching_workers(management, queue, out):
            whole = await waiting.wait_import(management, found.id, seconds, seen)
    if not whole.status.final:
        why = whole.message if said else "check that a worker is running"
        out.note(f"import {whole.id} is {whole.status} after {seconds:g} s; {why}")
    return whole


_ERRORS_SHOWN = 10
_CHANGES_SHOWN = 5


def show_import(found: ImportWholeSchema, out: Output) -> None:
    """Print one import: its record as JSON, or its row counts and first errors."""
    if out.as_json:
        out.json(found)
        return
    names = ("id", "type", "status", "fileName", "companyId", "projectId", "sheetName", "message")
    values = found.json_object()
    progress = {} if found.finished_at else {"progress": f"{found.progress} %"}
    out.fields({name: values[name] for name in names if values[name]} | progress)
    summary = found.summary
    counts = ("total_rows", "inserted", "updated", "unchanged", "duplicates", "failed")
    if summary.total_rows:
        out.line("")
        out.table(("rows", *counts[1:]), [[f"{getattr(summary, name):,}" for name in counts]], "")
    if found.dry_run and found.result_json:
        _show_dry_run(found.result_json, out)
    meta = found.meta_json
    if unknown := meta.get("unknownColumns"):
        out.line(f"ignored columns: {', '.join(unknown)}")
    for notice in meta.get("notices", ()):
        out.line(notice)
    if (problem := (found.error_json or {}).get("message")) and problem != found.message:
        out.line(f"reason: {problem}")
    if found.status in ("FAILED", "CANCELLED") and found.completed_chunks:
        out.note(f"loaded rows stay in the table; to continue: rowlock imports resume {found.id}")
    if summary.errors:
        out.line("")
        show_errors(summary.errors[:_ERRORS_SHOWN], out)
    if summary.error_count > min(_ERRORS_SHOWN, len(summary.errors)):
        out.note(f"{summary.error_count:,} errors in total: rowlock imports errors {found.id} --csv errors.csv")


def _show_dry_run(result: dict[str, Any], out: Output) -> None:
    """Print the result of a dry run: which columns would change, and some rows before and after."""
    if result.get("wouldDelete"):
        out.line(f"would first delete the {result['wouldDelete']:,} existing rows")
    for column, times in (result.get("changed") or {}).items():
        out.line(f"would change {column} in {times:,} row{'s' if times != 1 else ''}")
    rows = []
    for change in (result.get("sample") or ())[:_CHANGES_SHOWN]:
        before, after = change["before"] or {}, change["after"]
        shown = [f"{name}: {before.get(name)} -> {value}" for name, value in after.items() if before.get(name) != value]
        rows.append((change["row"], "update" if change["before"] else "insert", ", ".join(shown)))
    if rows:
        out.line("")
        out.table(("row", "", "change"), rows, "")


def show_errors(errors: list[RowErrorSchema], out: Output) -> None:
    rows = [(error.row, error.column, error.value, error.reason) for error in errors]
    out.table(("row", "column", "value", "reason"), rows, "no errors")
