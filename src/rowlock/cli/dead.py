"""`rowlock dead`: the dead-letter queue, which holds the jobs that failed for good."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError
from rowlock.cli.jobs import Cursor, Limit, show_page

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.storage.records import JobFilter, Page

commands = typer.Typer(no_args_is_help=True, help="The dead-letter queue: jobs that failed for good.")

_BATCH = 500
_COUNT_MAX = 10_000_000

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of failed jobs.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every failed job; needed where no id, type or queue is given.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many jobs match.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on a terminal.")]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="dead")


@commands.command(
    "list",
    help=options.examples(
        "List failed jobs, newest first, with the reason of each.",
        "rowlock dead list",
        "rowlock dead list --type demo.sleep --json",
    ),
)
def list_(
    type: options.JobType = None,
    queue: options.Queue = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        page = await _page(app, _where(None, type, queue), limit, cursor)
        show_page(page, app, out, "no failed jobs")

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Queue failed jobs again, with fresh attempts.",
        "rowlock dead retry --type demo.sleep --dry-run",
        "rowlock dead retry --queue imports --yes",
        "rowlock dead retry --all",
    )
)
def retry(
    ids: Ids = None,
    type: options.JobType = None,
    queue: options.Queue = None,
    all: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    _require_choice(ids, type, queue, all)

    async def work(app: Rowlock, out: Output) -> int:
        where = _where(ids, type, queue)
        matched = await _matched(app, where, "Queue", dry_run or yes)
        retried: list[str] = []
        conflicts: list[str] = []
        if not dry_run:
            with out.progress("queueing again", matched) as advance:
                async for batch in _batches(app, where):
                    done = await app.store.retry(_where(batch, None, None), len(batch))
                    retried += done.retried
                    conflicts += done.conflicts
                    advance(len(batch))
        if json:
            out.json({"dryRun": dry_run, "matched": matched, "retried": len(retried), "conflicts": conflicts})
        else:
            out.line(f"{matched:,} failed jobs match" if dry_run else f"{len(retried):,} jobs are queued again")
        if conflicts:
            out.note(f"another job holds the unique key now, so these stay failed: {', '.join(conflicts)}")
        return _code(ids, matched if dry_run else len(retried), out)

    return command(app, database, json, work)


@commands.command(
    help=options.examples(
        "Remove failed jobs for good, and free the unique keys that they hold.",
        "rowlock dead discard 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
        "rowlock dead discard --type demo.sleep --dry-run",
    )
)
def discard(
    ids: Ids = None,
    type: options.JobType = None,
    queue: options.Queue = None,
    all: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    app: options.App = options.APP_DEFAULT,
    database: options.Database = None,
    json: options.Json = False,
) -> int:
    from rowlock.cli.session import command

    _require_choice(ids, type, queue, all)

    async def work(app: Rowlock, out: Output) -> int:
        where = _where(ids, type, queue)
        matched = await _matched(app, where, "Remove", dry_run or yes)
        discarded = 0
        if not dry_run:
            with out.progress("removing", matched) as advance:
                async for batch in _batches(app, where):
                    discarded += len(await app.store.discard(_where(batch, None, None), len(batch)))
                    advance(len(batch))
        if json:
            out.json({"dryRun": dry_run, "matched": matched, "discarded": discarded})
        else:
            out.line(f"{matched:,} failed jobs match" if dry_run else f"{discarded:,} jobs are removed")
        return _code(ids, matched if dry_run else discarded, out)

    return command(app, database, json, work)


def _require_choice(ids: list[str] | None, type: str | None, queue: str | None, all: bool) -> None:
    if not (ids or type or queue or all):
        raise UsageError("which jobs? give ids, --type, --queue, or --all")
    if all and (ids or type or queue):
        raise UsageError("--all means every failed job: leave out the ids, --type and --queue, or leave out --all")


def _where(ids: list[str] | None, type: str | None, queue: str | None) -> JobFilter:
    from rowlock.storage.records import JobFilter, Status

    return JobFilter(status=Status.FAILED, type=type, queue=queue, ids=list(dict.fromkeys(ids)) if ids else None)


async def _matched(app: Rowlock, where: JobFilter, verb: str, unasked: bool) -> int:
    """How many jobs match, once a person at a terminal has agreed."""
    matched = await app.store.count(where, _COUNT_MAX)
    if matched and not unasked and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(f"{verb} {matched:,} failed jobs?", abort=True, err=True)
    return matched


async def _batches(app: Rowlock, where: JobFilter) -> AsyncIterator[list[str]]:
    """The ids of the jobs that match, some at a time; what a batch leaves behind is not met again."""
    cursor: str | None = None
    while True:
        page = await app.store.page(where, _BATCH, cursor)
        if page.jobs:
            yield [job.id for job in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            return


async def _page(app: Rowlock, where: JobFilter, limit: int, cursor: str | None) -> Page:
    try:
        return await app.store.page(where, limit, cursor)
    except ValueError as error:
        raise UsageError(f"--cursor: {error}") from None


def _code(ids: Any, done: int, out: Output) -> int:
    """Jobs named one by one and not found among the failed are a failure; a filter that matches none is not."""
    missing = len(set(ids or ())) - done
    if missing > 0:
        out.error(f"{missing:,} of the ids given were not among the failed jobs, or stay there")
    return 1 if missing > 0 else 0
