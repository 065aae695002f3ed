"""`rowlock dead`: list, retry and discard dead letters, the jobs whose status is `failed`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError
from rowlock.cli.jobs import Cursor, Limit, show_page
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output
    from rowlock.management.schemas.dead_letters import DeadGroupsSchema, DiscardedSchema, RetriedSchema
    from rowlock.management.schemas.jobs import JobSchema

    C = TypeVar("C", RetriedSchema, DiscardedSchema)
    Change = Callable[..., Awaitable[C]]

commands = typer.Typer(no_args_is_help=True, help="Dead letters: list, retry and discard failed jobs.")

_BATCH = 500
_SUMMED = ("matched", "retried", "discarded", "conflicts")

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of failed jobs.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every failed job; required without ids or filters.")]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="Only jobs that failed for this reason, as shown by `--groups`."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the jobs that match.")]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Skip the confirmation; required for `discard` without ids if there is no terminal."
    ),
]


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="dead")


@commands.command(
    "list",
    help=options.examples(
        "List failed jobs, newest first, with the reason of each.",
        "rowlock dead list",
        "rowlock dead list --type email.send --json",
        "rowlock dead list --groups",
    ),
)
@asks()
async def list_(
    management: Management,
    out: Output,
    type: options.JobType = None,
    queue: options.Queue = None,
    reason: Reason = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Count them by type and reason instead of listing them.")
    ] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> None:
    if groups:
        if reason is not None or cursor is not None:
            raise UsageError("--groups counts all reasons: leave out --reason and --cursor")
        _show_groups(await management.dead_groups(type=type, queue=queue), limit, out)
        return
    page = await management.dead_letters(type=type, queue=queue, reason=reason, limit=limit, cursor=cursor)
    show_page(page, out, "no failed jobs")
    if not out.as_json:
        _advise(page.jobs, out)


@commands.command(
    help=options.examples(
        "Retry failed jobs, with fresh attempts.",
        "rowlock dead retry --type email.send --dry-run",
        "rowlock dead retry --queue imports --yes",
        "rowlock dead retry --reason 'TimeoutError: no answer within 30 s'",
        "rowlock dead retry --all",
    )
)
@asks(needs_app=True)
async def retry(
    management: Management,
    out: Output,
    ids: Ids = None,
    type: options.JobType = None,
    queue: options.Queue = None,
    reason: Reason = None,
    all: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    _require_choice(ids, type, queue, reason, all)
    where = {"ids": ids and list(dict.fromkeys(ids)), "type": type, "queue": queue, "reason": reason}
    done = await _do(management.retry_dead, where, out, "Queue", "retrying", dry_run, yes)
    text = f"{done.matched:,} failed jobs match" if dry_run else f"{done.retried:,} jobs are queued again"
    out.tell(done, text)
    if done.conflicts:
        out.note(f"another job has the unique key now, so these stay failed: {', '.join(done.conflicts)}")
    return _code(ids, done.matched if dry_run else done.retried, out)


@commands.command(
    help=options.examples(
        "Delete failed jobs, and release their unique keys. This cannot be undone.",
        "rowlock dead discard 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
        "rowlock dead discard --type email.send --dry-run",
        "rowlock dead discard --type email.send --yes    # in a script",
    )
)
@asks()
async def discard(
    management: Management,
    out: Output,
    ids: Ids = None,
    type: options.JobType = None,
    queue: options.Queue = None,
    reason: Reason = None,
    all: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    _require_choice(ids, type, queue, reason, all)
    where = {"ids": ids and list(dict.fromkeys(ids)), "type": type, "queue": queue, "reason": reason}
    if not (ids or dry_run or yes or _on_a_terminal()):
        raise UsageError(
            "discard deletes jobs, and there is no terminal for the confirmation: add --yes, or count with --dry-run"
        )
    done = await _do(management.discard_dead, where, out, "Remove", "removing", dry_run, yes)
    text = f"{done.matched:,} failed jobs match" if dry_run else f"{done.discarded:,} jobs are deleted"
    out.tell(done, text)
    return _code(ids, done.matched if dry_run else done.discarded, out)


def _show_groups(found: DeadGroupsSchema, limit: int, out: Output) -> None:
    """Print groups as a table, or in JSON as {groups, more, lookedAt, complete}."""
    from rowlock.cli.output import ago

    shown = found.groups[:limit]
    more = found.more or len(found.groups) > limit
    if out.as_json:
        out.json(found.with_(groups=shown, more=more))
        return
    rows = [[f"{group.count:,}", group.type, ago(group.first_at), ago(group.last_at), group.reason] for group in shown]
    out.table(("jobs", "type", "first", "last", "reason"), rows, "no failed jobs")
    if more:
        out.note("there are more groups: filter with --type or --queue")
    if not found.complete:
        out.note(f"only the newest {found.looked_at:,} failed jobs were counted: there are more")


def _advise(jobs: list[JobSchema], out: Output) -> None:
    """Print the jobs' guidance, each step once, without steps that name a single job."""
    said = dict.fromkeys(step for job in jobs for step in job.guidance if job.id not in step)
    for step in said:
        out.note(step)


def _require_choice(ids: list[str] | None, type: str | None, queue: str | None, reason: str | None, all: bool) -> None:
    narrowed = bool(ids or type or queue or reason is not None)
    if not (narrowed or all):
        raise UsageError("no jobs selected: give ids, --type, --queue, --reason, or --all")
    if all and narrowed:
        raise UsageError("--all means every failed job: remove --all, or remove the ids, --type, --queue and --reason")


async def _do(
    change: Change[C], where: dict[str, Any], out: Output, verb: str, label: str, dry_run: bool, yes: bool
) -> C:
    """Change all matching jobs, after a confirmation on a terminal, and return the totals; `dry_run` only counts."""
    total = await _sum(change, where, dry_run=True)
    if dry_run:
        return total
    if total.matched and not yes and _on_a_terminal():
        typer.confirm(f"{verb} {total.matched:,} failed jobs?", abort=True, err=True)
    with out.progress(label, total.matched) as advance:
        return await _sum(change, where, lambda page: advance(page.matched))


def _on_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _sum(
    change: Change[C], where: dict[str, Any], seen: Callable[[C], None] = lambda _: None, *, dry_run: bool = False
) -> C:
    """Change all matching jobs, and return the sums of all pages."""
    whole: C | None = None
    async for page in _pages(change, where, dry_run):
        seen(page)
        sums = {name: getattr(whole, name) + getattr(page, name) for name in _SUMMED if hasattr(whole, name)}
        whole = page.with_(**sums)
    assert whole is not None
    return whole


async def _pages(change: Change[C], where: dict[str, Any], dry_run: bool) -> AsyncIterator[C]:
    """Work page by page and yield the results; the cursor skips jobs that an earlier page left unchanged."""
    ids = where["ids"]
    for some in [ids[at : at + _BATCH] for at in range(0, len(ids), _BATCH)] if ids else [None]:
        cursor: str | None = None
        while True:
            page = await change(**where | {"ids": some}, dry_run=dry_run, limit=_BATCH, cursor=cursor)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                break


def _code(ids: list[str] | None, done: int, out: Output) -> int:
    """Return 1 if some of the given ids did not match or change, otherwise 0; a filter may match nothing."""
    missing = len(set(ids or ())) - done
    if missing > 0:
        out.error(f"{missing:,} of the given ids are not failed jobs, or could not be changed")
    return 1 if missing > 0 else 0
