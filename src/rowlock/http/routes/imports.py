"""/api/v1/imports and import-jobs: import a file by name, progress, errors; `uploads` receives files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rowlock.errors import DuplicateImport, ImportNotFound, UnknownImportType
from rowlock.http.endpoint_routes import derive, route
from rowlock.http.json_response import answer
from rowlock.http.middleware.auth import Caller, Viewer
from rowlock.http.middleware.idempotency_key import reserved
from rowlock.http.openapi import fails
from rowlock.http.problem import Problem, problem_of
from rowlock.imports.intake.intake import About
from rowlock.management import ManagementService
from rowlock.management.schemas.base import EXAMPLE_ID, Name
from rowlock.management.schemas.imports import (
    ImportSchema,
)
from rowlock.management.schemas.requests import ImportNamedRequest, ImportOptions

router = APIRouter()

ImportId = Annotated[str, Path(min_length=1, max_length=64, examples=[EXAMPLE_ID])]
TypeName = Annotated[Name, Path(examples=["customers"])]

_CSV = {"content": {"text/csv": {"schema": {"type": "string"}}}}


@route(router, ManagementService.import_named)
async def import_named(request: Request, caller: Caller, given: ImportNamedRequest) -> Response:
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


derive(router, ManagementService.import_jobs, ManagementService.import_job, ManagementService.import_errors)


@router.get(
    "/api/v1/import-jobs/{import_id}/errors.csv",
    tags=["imports"],
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


derive(router, ManagementService.resume_import, ManagementService.cancel_import, ManagementService.import_types)


@router.get(
    "/api/v1/import-types/{name:path}/template.csv",
    tags=["imports"],
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
