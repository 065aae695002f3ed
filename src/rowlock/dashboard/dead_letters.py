"""/dead: dead letters by type and reason; retry and discard show the count first and ask for confirmation."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from rowlock.dashboard.bulk_actions import Ask, Chosen, Verb, chosen, rounds
from rowlock.dashboard.job_filters import Narrowed, cursor_of, narrowed, tidied
from rowlock.dashboard.job_status import says, short
from rowlock.dashboard.rendering import back, fields, page, rowlock
from rowlock.dashboard.session import own_path
from rowlock.dashboard.shared_reads import shared
from rowlock.errors import RowlockError
from rowlock.http.middleware.auth import Caller, Operator, Viewer
from rowlock.http.problem import logged
from rowlock.management.schemas.dead_letters import DeadGroupSchema, DeadGroupsSchema

router = APIRouter()

SHOWN = 50
COUNTED_MAX = 10_000  # a group is counted up to this number


@router.get("/dead")
async def dead(request: Request, caller: Viewer) -> Response:
    """Show groups by type and reason; with a reason in the query, the jobs of one group."""
    if (short_way := tidied(request)) is not None:
        return short_way
    where = narrowed(request.query_params, "type", "queue", "companyId", "reason")
    listed = "reason" in where.said and not where.wrong
    return page(
        request,
        caller,
        "dead-group.html" if listed else "dead.html",
        status=422 if where.wrong else 200,
        where=where,
        live=f"/api/v1/events?type={quote(where.said['type'])}" if "type" in where.said else "/api/v1/events",
        live_on="job",
        redacted=rowlock(request).redact.text,
        **(await _jobs(request, caller, where) if listed else await _groups(request, caller, where)),
    )


async def _groups(request: Request, caller: Caller, where: Narrowed) -> dict[str, Any]:
    found = DeadGroupsSchema(groups=[], more=False, complete=True, looked_at=0)
    if not where.wrong:
        found = await _grouped(request, caller, where)
    return {"found": found, "total": sum(group.count for group in found.groups), "mark": _mark}


def _mark(group: DeadGroupSchema) -> str:
    """Return an id for a group that stays the same across refreshes."""
    return blake2b(f"{group.type}\n{group.reason}".encode(), digest_size=8).hexdigest()


async def _grouped(request: Request, caller: Caller, where: Narrowed) -> DeadGroupsSchema:
    """Return all groups of a filter; requests at about the same time share one query."""
    asked = {key: value for key, value in where.asked.items() if key != "reason"}
    key = ("dead", caller.token.company_id, *asked.items())
    return await shared(request).get(key, lambda: caller.management.dead_groups(**asked))


async def _jobs(request: Request, caller: Caller, where: Narrowed) -> dict[str, Any]:
    cursor = cursor_of(request.query_params)
    management, asked, who = caller.management, where.asked, (caller.token.company_id, *where.asked.items())
    found = await shared(request).get(
        ("dead jobs", *who, cursor), lambda: management.dead_letters(**asked, limit=SHOWN, cursor=cursor)
    )
    counted = await shared(request).get(
        ("dead count", *who), lambda: management.count_dead(**asked, at_most=COUNTED_MAX + 1)
    )
    groups = (await _grouped(request, caller, where)).groups
    return {
        "group": next((group for group in groups if group.reason == where.said["reason"]), None),
        "rows": [{"job": job, "short": short(job.id), "says": says(job)} for job in found.jobs],
        "total": counted.matched,
        "counted_max": COUNTED_MAX,
        "cursor": cursor,
        "next_cursor": found.next_cursor,
    }


# -- retry and discard -----------------------------------------------------------------------------


@router.get("/dead/retry")
async def sure_to_retry(request: Request, caller: Operator) -> Response:
    return await _ask(request, caller, "retry")


@router.get("/dead/discard")
async def sure_to_discard(request: Request, caller: Operator) -> Response:
    return await _ask(request, caller, "discard")


@router.post("/dead/retry")
async def retry(request: Request, caller: Operator) -> Response:
    return await _act(request, caller, "retry")


@router.post("/dead/discard")
async def discard(request: Request, caller: Operator) -> Response:
    return await _act(request, caller, "discard")


async def _ask(request: Request, caller: Caller, verb: Verb) -> Response:
    """Show how many jobs match, and ask for confirmation; changes nothing."""
    query = request.query_params
    ids = " ".join(query.getlist("id"))
    if not ids and query.get("from") and "cursor" not in query:
        return back(request, own_path(query["from"]), "Choose at least one job first.", "bad")
    return await _sure(request, caller, verb, chosen({**query, **({"ids": ids} if ids else {})}))


async def _sure(request: Request, caller: Caller, verb: Verb, which: Chosen) -> Response:
    seen_at = which.seen_at if which.cursor is not None else None  # a continued action keeps the first count's time
    counted = await caller.management.count_dead(**which.asked, died_before=seen_at)
    return page(
        request,
        caller,
        "sure.html",
        verb=verb,
        which=which,
        words=which.words(rowlock(request).redact.text),
        matched=counted.matched,
        seen_at=(seen_at or counted.at).isoformat(),
        one=await caller.management.job(which.ids[0]) if len(which.ids) == 1 and counted.matched else None,
    )


async def _act(request: Request, caller: Caller, verb: Verb) -> Response:
    """Retry or discard the jobs that were shown, and report exactly what was done."""
    which = chosen({key: str(value) for key, value in fields(request).items()})
    if which.seen_at is None:
        return await _sure(request, caller, verb, which)
    redact = rowlock(request).redact
    outcome = await rounds(_verb(caller, verb), which, lambda error: logged(error, request.url.path, redact))
    if outcome.cursor is not None and outcome.broken is None:
        left = {
            "cursor": outcome.cursor,
            "done": which.done + outcome.done,
            "kept": which.kept + len(outcome.conflicts),
            "seenAt": which.seen_at.isoformat(),
            **({"from": which.came_from} if which.came_from else {}),
        }
        return back(request, f"/dead/{verb}?{urlencode({**which.said, **left})}")
    since = 0 if outcome.broken else await _since(caller, which, which.kept + len(outcome.conflicts))
    text = outcome.sentence(verb, which.done, which.kept, since)
    return back(request, _after(which), text, "bad" if outcome.broken or outcome.conflicts else "good")


async def _since(caller: Caller, which: Chosen, kept: int) -> int:
    """Return how many matching jobs failed since: of those shown, only the kept ones still match."""
    try:
        matched = (await caller.management.count_dead(**which.asked)).matched
    except RowlockError:  # the action succeeded; only this count is missing
        return 0
    return max(0, matched - kept)


def _verb(caller: Caller, verb: Verb) -> Ask:
    return caller.management.retry_dead if verb == "retry" else caller.management.discard_dead


def _after(which: Chosen) -> str:
    """Return the page to show afterwards: where it came from, or the list with the filter but without the group."""
    if which.came_from:
        return which.came_from
    kept = {key: which.said[key] for key in ("type", "queue", "companyId") if key in which.said}
    whole = "reason" not in which.said and "ids" not in which.said
    return f"/dead?{urlencode(kept)}" if kept and whole else "/dead"
