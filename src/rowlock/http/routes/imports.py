"""/api/v1/imports and import-jobs: import a file by name, progress, errors; `uploads` receives files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rowlock.errors import DuplicateImport, ImportNotFound, UnknownImportType
from rowlock.http.json_response import answer, polled
from rowlock.http.middleware.auth import Caller, Operator, Viewer
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.http.openapi import NOT_MODIFIED, fails
from rowlock.http.post_routes import Posted
from rowlock.http.problem import Problem, problem_of
from rowlock.http.routes.jobs import CursorQuery, LimitQuery
from rowlock.imports.intake.intake import About
from rowlock.management.schemas.base import EXAMPLE_ID, ImportStatusField, Limit, Name
from rowlock.management.schemas.imports import (
    ImportErrorsSchema,
    ImportSchema,
    ImportsSchema,
    ImportTypesSchema,
    ImportWholeSchema,
)
from rowlock.management.schemas.requests import ImportNamedRequest, ImportOptions

router = APIRouter(prefix="/api/v1", tags=["imports"])
posted = APIRouter(prefix="/api/v1", tags=["imports"], route_class=Posted)

ImportId = Annotated[str, Path(min_length=1, max_length=64, examples=[EXAMPLE_ID])]
TypeName = Annotated[Name, Path(examples=["customers"])]

_CSV = {"content": {"text/csv": {"schema": {"type": "string"}}}}
_ROW_MAX = 2**31 - 1


@posted.post(
    "/imports/xlsx",
    status_code=202,
    response_model=ImportSchema,
    responses=fails(404, 409, 413, 415),
    summary="Import a file of the import folder",
)
async def import_named(request: Request, caller: Operator, given: ImportNamedRequest) -> Response:
    """A workbook or a CSV file, by its name; the file stays there. The response is that of the uploads."""
    try:
        added = await caller.management.arrivals.named(given.filename, about(caller, given), reserved(request))
    except DuplicateImport as error:
        raise await duplicate(caller, error) from None
    return accepted(request, added)


def about(caller: Caller, given: ImportOptions) -> About:
    """Return the options of an import, with the caller's token as its creator."""
    return About(
        given.type,
        given.sheet_name,
        given.company_id,
        given.project_id,
        caller.token.id,
        given.force,
        given.dry_run,
    )


def accepted(request: Request, added: ImportSchema) -> Response:
    """Return 202 with the import, and its address in Location."""
    response = answer(added, 202)
    response.headers["location"] = f"{request.scope.get('root_path', '')}/api/v1/import-jobs/{added.id}"
    return response


async def duplicate(caller: Caller, error: DuplicateImport) -> Problem:
    """Return the problem (409), with the earlier import if it still exists."""
    problem = problem_of(error)
    with suppress(ImportNotFound):
        problem.more["existing"] = (await caller.management.import_job(error.existing_import_id)).json_object()
    return problem


@router.get("/import-jobs", response_model=ImportsSchema, responses=NOT_MODIFIED, summary="List imports, newest first")
async def import_jobs(
    request: Request,
    caller: Viewer,
    type: Annotated[Name | None, Query(description="Only imports of this type.")] = None,
    status: Annotated[ImportStatusField | None, Query(description="Only imports with this status.")] = None,
    company_id: Annotated[Name | None, Query(alias="companyId", description="Only imports of this company.")] = None,
    limit: LimitQuery = 50,
    cursor: CursorQuery = None,
) -> Response:
    page = await caller.management.import_jobs(
        type=type, status=status, company_id=company_id, limit=limit, cursor=cursor
    )
    return polled(request, page)


@router.get(
    "/import-jobs/{import_id}",
    response_model=ImportWholeSchema,
    responses=fails(404) | NOT_MODIFIED,
    summary="Get an import",
)
async def import_job(request: Request, caller: Viewer, import_id: ImportId) -> Response:
    """Status, progress, totals, chunks and the first 100 errors."""
    return polled(request, await caller.management.import_job(import_id))


@router.get(
    "/import-jobs/{import_id}/errors",
    response_model=ImportErrorsSchema,
    responses=fails(404) | NOT_MODIFIED,
    summary="List the errors of an import",
)
async def import_errors(
    request: Request,
    caller: Viewer,
    import_id: ImportId,
    limit: Annotated[Limit, Query(description="Maximum number of rows.")] = 100,
    after_row: Annotated[
        int, Query(alias="afterRow", ge=0, le=_ROW_MAX, description="The nextRow of an earlier page.")
    ] = 0,
) -> Response:
    """In the order of the file."""
    return polled(request, await caller.management.import_errors(import_id, after_row=after_row, limit=limit))


@router.get(
    "/import-jobs/{import_id}/errors.csv",
    response_class=Response,
    responses=fails(404) | {200: _CSV},
    summary="Download the rows with errors",
)
async def import_errors_csv(caller: Viewer, import_id: ImportId) -> Response:
    """The rows and columns of the file, then `row`, `column` and `reason`. Text that a spreadsheet program might take
    for a formula has an apostrophe before it."""
    parts = caller.management.import_errors_csv(import_id)
    first = await anext(parts)  # raises ImportNotFound before the response starts

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return StreamingResponse(whole(), headers=_attachment(f"errors-{import_id}.csv"))


@router.post(
    "/import-jobs/{import_id}/resume",
    response_model=ImportWholeSchema,
    responses=fails(404, 409),
    summary="Resume an import",
)
async def resume_import(caller: Operator, import_id: ImportId) -> Response:
    """Resumes a failed or cancelled import: only unfinished chunks run again."""
    return answer(await caller.management.resume_import(import_id))


@router.post(
    "/import-jobs/{import_id}/cancel",
    response_model=ImportWholeSchema,
    responses=fails(404, 409),
    summary="Cancel an import",
)
async def cancel_import(caller: Operator, import_id: ImportId) -> Response:
    """Rows of finished chunks stay in the table; no further chunk is loaded."""
    return answer(await caller.management.cancel_import(import_id))


@router.get("/import-types", response_model=ImportTypesSchema, responses=NOT_MODIFIED, summary="List import types")
async def import_types(request: Request, caller: Viewer) -> Response:
    """With the accepted names and formats of their columns."""
    return polled(request, await caller.management.import_types())


@router.get(
    "/import-types/{name:path}/template.csv",
    response_class=Response,
    responses={200: _CSV},
    summary="Download a template with the columns of an import type",
)
async def import_template(caller: Viewer, name: TypeName) -> Response:
    try:
        template = await caller.management.import_template(name)
    except UnknownImportType as error:
        raise Problem("not_found", str(error)) from None
    return Response(template, headers=_attachment("template.csv"))


def _attachment(file_name: str) -> dict[str, str]:
    return {
        "content-type": "text/csv; charset=utf-8",
        "content-disposition": f'attachment; filename="{file_name}"',
        "cache-control": "private, no-store",
    }
