"""/imports: upload a file and follow its import; an import's page shows the outcome of its rows and the errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from rowlock.control import tokens
from rowlock.dashboard import import_tables as tables
from rowlock.dashboard import import_view as view
from rowlock.dashboard.filters import count, sentence
from rowlock.dashboard.import_messages import Message, for_people, nameless
from rowlock.dashboard.rendering import back, fields, page, rowlock
from rowlock.dashboard.shared_reads import shared
from rowlock.errors import (
    BadPayload,
    CompanyMismatch,
    DuplicateImport,
    FileRefused,
    ImportFault,
    ImportIsOver,
    ImportNotFound,
    ImportNotResumable,
    SettingsError,
    UnknownImportType,
)
from rowlock.http.middleware.auth import Caller, Operator, Viewer
from rowlock.http.problem import PROBLEMS, Problem
from rowlock.http.routes.uploads import Upload
from rowlock.imports.intake.upload import too_large
from rowlock.management.schemas.base import Cursor, ImportStatusField, Name
from rowlock.management.schemas.imports import ImportWholeSchema
from rowlock.management.schemas.requests import UploadQuery

router = APIRouter()

ImportId = Annotated[str, Path(min_length=1, max_length=64)]
_LISTED = 25
_ERROR_ROWS = 50
_NAMES_SECONDS = 30.0
_FRESH_SECONDS = 0.25  # less than pages wait after an event, so that none gets the state before it
_ROW_MAX = 2**31 - 1
_SIZE_MAX = 2**53


@router.get("/imports")
async def imports(
    request: Request,
    caller: Viewer,
    type: Annotated[Name | Literal[""], Query()] = "",
    status: Annotated[ImportStatusField | Literal[""], Query()] = "",
    cursor: Annotated[Cursor | None, Query()] = None,
    file: Annotated[str, Query(max_length=1_000)] = "",
    size: Annotated[int, Query(ge=0, le=_SIZE_MAX)] = 0,
    as_: Annotated[str, Query(alias="as", max_length=200)] = "",
) -> Response:
    """Show the form and the list; with `file` and `size`, check a file before it is sent."""
    wrong, chosen, hint = None, as_, ""
    if file:
        try:
            chosen = await _type_of(caller, file, size)
            hint = (
                "Recognised by the file name." if chosen else "Choose what is in the file: its name does not show it."
            )
        except (FileRefused, SettingsError) as error:
            wrong = for_people(error.code, str(error))
    return await _page(request, caller, type, status, cursor, wrong=wrong, chosen=chosen, hint=hint)


async def _type_of(caller: Caller, file: str, size: int) -> str:
    found = await caller.management.import_type_of(file)
    if size > found.bytes_max:
        raise too_large(file, found.bytes_max)
    return found.type or ""


@router.post("/imports")
async def upload(request: Request, caller: Operator) -> Response:
    """Receive a file; errors are shown on the same page."""
    existing, sent = None, Upload(request, caller, UploadQuery())
    try:
        added = await sent.taken()
        return back(request, f"/imports/{added.id}")
    except DuplicateImport as error:
        if sent.texts.get("force") == "true":
            return _under_way(request, error)
        wrong, status = for_people(error.code, str(error)), 409
        existing = await _existing(caller, error.existing_import_id)
    except UnknownImportType as error:
        wrong, status = nameless() if "no type was given" in str(error) else for_people(error.code, str(error)), 422
    except RequestValidationError as error:
        wrong, status = for_people("validation_failed", "; ".join(item["msg"] for item in error.errors()[:3])), 422
    except (FileRefused, ImportFault, BadPayload, CompanyMismatch, SettingsError) as error:
        wrong, status = (
            for_people(error.code, str(error)),
            PROBLEMS[error.code].status if error.code in PROBLEMS else 422,
        )
    except Problem as error:
        if error.status >= 500:
            raise
        wrong, status = for_people(error.code, error.detail), error.status
    return await _page(
        request, caller, wrong=wrong, existing=existing, chosen=sent.texts.get("type", ""), answer=status
    )


def _under_way(request: Request, error: DuplicateImport) -> Response:
    """Redirect to the import that a second click would have repeated."""
    said = "The same file is already being imported. This is its progress; it was not imported twice."
    return back(request, f"/imports/{error.existing_import_id}", said)


async def _existing(caller: Caller, import_id: str) -> ImportWholeSchema | None:
    try:
        return await caller.management.import_job(import_id)
    except ImportNotFound:
        return None


async def _page(
    request: Request,
    caller: Caller,
    type: str = "",
    status: str = "",
    cursor: str | None = None,
    *,
    wrong: Message | None = None,
    existing: ImportWholeSchema | None = None,
    chosen: str = "",
    hint: str = "",
    answer: int = 200,
) -> Response:
    management, company = caller.management, caller.token.company_id
    found = await shared(request).get(
        ("imports", company, type, status, cursor),
        lambda: management.import_jobs(type=type or None, status=status or None, limit=_LISTED, cursor=cursor),
        _FRESH_SECONDS,
    )
    types = (await management.import_types()).types
    names = [each.name for each in types]
    if not chosen and len(names) == 1:
        chosen = names[0]
    settings = rowlock(request).settings
    asked = {"type": type, "status": status}
    return page(
        request,
        caller,
        "imports.html",
        status=answer,
        imports=found.imports,
        older=_query("/imports", asked | {"cursor": found.next_cursor}) if found.next_cursor else "",
        newest=_query("/imports", asked) if cursor else "",
        filtered=bool(type or status or cursor),
        type=type,
        word=status,
        types=types,
        chosen=chosen if chosen in names else "",
        hint=hint,
        wrong=wrong,
        existing=existing,
        whose=await _names(request, company),
        csv_bytes_max=settings.import_csv_bytes_max,
        xlsx_bytes_max=settings.import_xlsx_bytes_max,
    )


def _query(path: str, asked: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in asked.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


async def _names(request: Request, company: str | None) -> dict[str, str]:
    """Return the names of tokens by id, to show who sent a file; a company gets only those of its own tokens."""
    store = rowlock(request).store

    async def look() -> dict[str, str]:
        return {token.id: token.name for token in await tokens.listed(store) if company in (None, token.company_id)}

    return await shared(request).get(("names of tokens", company), look, _NAMES_SECONDS)


# -- one import ------------------------------------------------------------------------------------


@router.get("/imports/{import_id}")
async def import_page(
    request: Request,
    caller: Viewer,
    import_id: ImportId,
    after: Annotated[int, Query(ge=0, le=_ROW_MAX)] = 0,
    columns: Annotated[str, Query(max_length=10)] = "",
    before: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """Show one import. `before`: an earlier import of the same file; `after`: show the errors below this row."""
    management, look = caller.management, shared(request)
    key = (caller.token.company_id, import_id)
    found = await look.get(("import", *key), lambda: management.import_job(import_id), _FRESH_SECONDS)
    rows = None
    if found.summary.error_count:
        rows = await look.get(
            ("errors", *key, after),
            lambda: management.import_error_rows(import_id, after_row=after, limit=_ERROR_ROWS),
            _FRESH_SECONDS,
        )
    kept = await look.get(("kept", *key), lambda: management.import_kept(import_id), _FRESH_SECONDS)
    every = {"all": True, "bad": False}.get(columns)
    here = f"/imports/{found.id}"
    return page(
        request,
        caller,
        "import.html",
        found=found,
        here_path=here,
        over=bool(found.finished_at),
        steps=view.steps(found),
        headline=view.headline(found),
        parts_of_rows=view.parts(found),
        read_as=view.read_as(found.meta_json),
        failure=view.failure(found),
        actions=view.actions(found, kept),
        groups=tables.groups(found),
        sheet=rows and tables.sheet(rows, every_column=every),
        called=await _called(caller, found.type),
        changes=tables.changes(found) if found.dry_run else None,
        existing=await _existing(caller, before) if before else None,
        after=after,
        every=every,
        next_errors=_query(here, {"after": str(rows.next_row), "columns": columns}) if rows and rows.next_row else "",
        first_errors=_query(here, {"columns": columns}) if after else "",
        kept_max=rowlock(request).settings.import_errors_max,
        whose=await _names(request, caller.token.company_id),
    )


async def _called(caller: Caller, type: str) -> dict[str, list[str]]:
    """Return the accepted headers of each column of an import type."""
    types = (await caller.management.import_types()).types
    return {column.name: column.headers for each in types if each.name == type for column in each.columns}


@router.post("/imports/{import_id}/import")
async def import_again(request: Request, caller: Operator, import_id: ImportId) -> Response:
    """Import the file of a dry run for real, without uploading it again."""
    force = fields(request).get("force") == "true"
    try:
        added = await caller.management.import_again(import_id, user_id=caller.token.id, force=force)
    except DuplicateImport as error:
        if force:
            return _under_way(request, error)
        return back(request, _query(f"/imports/{import_id}", {"before": error.existing_import_id}))
    except (FileRefused, ImportNotResumable) as error:
        return back(request, f"/imports/{import_id}", sentence(str(error)), "bad")
    return back(request, f"/imports/{added.id}")


@router.post("/imports/{import_id}/resume")
async def resume(request: Request, caller: Operator, import_id: ImportId) -> Response:
    try:
        found = await caller.management.resume_import(import_id)
    except ImportNotResumable as error:
        return back(request, f"/imports/{import_id}", sentence(str(error)), "bad")
    done = found.completed_chunks
    already = f", {count(done)} {'chunk was' if done == 1 else 'chunks were'} already loaded" if done else ""
    return back(request, f"/imports/{import_id}", f"The import continues where it stopped{already}.")


@router.post("/imports/{import_id}/cancel")
async def cancel(request: Request, caller: Operator, import_id: ImportId) -> Response:
    try:
        await caller.management.cancel_import(import_id)
    except ImportIsOver as error:
        return back(request, f"/imports/{import_id}", sentence(str(error)), "bad")
    return back(
        request, f"/imports/{import_id}", "The import is cancelled. Rows that were loaded before remain in the table."
    )
