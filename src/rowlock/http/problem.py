"""Errors over HTTP: problem+json (RFC 9457) with stable codes, each listed here once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from rowlock.errors import (
    DuplicateImport,
    DuplicateJob,
    FileRefused,
    NoTransactions,
    RowlockError,
    StatementRefused,
    StoreError,
    ValueRefused,
)
from rowlock.management.schemas.imports import ImportSchema
from rowlock.management.schemas.jobs import JobSchema
from rowlock.observe import logs
from rowlock.observe.redaction import Redactor
from rowlock.storage.blobs import FolderUnavailable

MEDIA_TYPE = "application/problem+json"
_WAIT_SECONDS = 5  # default Retry-After of temporary errors


class FieldProblem(BaseModel):
    field: str = Field(description="Place of the field: body.type, query.limit, …")
    message: str


class ProblemSchema(BaseModel):
    """An error, after RFC 9457."""

    type: str = Field(examples=["urn:rowlock:problem:job_not_found"])
    title: str
    status: int
    code: str = Field(description="Stable code.", examples=["job_not_found"])
    detail: str
    existingJobId: str | None = Field(None, description="With duplicate_job: the id of the existing job.")
    existingRemoved: bool | None = Field(
        None,
        description="With duplicate_job: true if that job was pruned and only its key is left.",
    )
    existingImportId: str | None = Field(None, description="With duplicate_import: the id of the earlier import.")
    existing: JobSchema | ImportSchema | None = Field(None, description="The existing job or import.")
    errors: list[FieldProblem] | None = Field(None, description="With validation_failed: every invalid field.")


@dataclass(frozen=True, slots=True)
class Kind:
    status: int
    title: str


PROBLEMS: Mapping[str, Kind] = {
    "malformed_request": Kind(400, "The HTTP request is malformed."),
    "unauthorized": Kind(401, "The token is missing, unknown, expired or revoked."),
    "forbidden": Kind(403, "The token's role does not allow this."),
    "company_scope": Kind(403, "The token is for one company, and the request concerns another or all companies."),
    "cross_site": Kind(403, "A request with the session's cookie must come from a page of the same origin."),
    "origin_not_allowed": Kind(403, "This origin is not allowed to call the API."),
    "not_found": Kind(404, "Nothing exists at this path."),
    "job_not_found": Kind(404, "No job or failure has this id."),
    "schedule_not_found": Kind(404, "No schedule has this name."),
    "import_not_found": Kind(404, "No import has this id."),
    "integration_not_found": Kind(404, "No integration has this name."),
    "operation_not_found": Kind(404, "The integration has no operation of this name."),
    "file_not_found": Kind(404, "There is no such file in the import folder."),
    "method_not_allowed": Kind(405, "This path does not accept the method."),
    "request_timeout": Kind(408, "The request was not received in time."),
    "duplicate_job": Kind(409, "A job with the same unique key already exists."),
    "job_not_retryable": Kind(409, "Only failed and cancelled jobs can be retried."),
    "job_is_over": Kind(409, "The job has already ended."),
    "job_not_waiting": Kind(409, "Only a waiting job can be run now."),
    "duplicate_import": Kind(409, "The same file was imported before, for the same type and company."),
    "import_is_over": Kind(409, "The import has already ended."),
    "import_not_resumable": Kind(409, "Only failed and cancelled imports whose files still exist can be resumed."),
    "integration_disabled": Kind(409, "The integration is disabled; the detail says what enables it."),
    "idempotency_in_progress": Kind(409, "A request with this Idempotency-Key is in progress."),
    "body_too_large": Kind(413, "The body is larger than the limit."),
    "payload_too_large": Kind(413, "The payload is larger than the limit."),
    "file_too_large": Kind(413, "The file is larger than the limit for its kind."),
    "unsupported_media_type": Kind(415, "This path does not accept the media type of the body."),
    "file_type_unknown": Kind(415, "Files of this type cannot be imported."),
    "file_content_mismatch": Kind(415, "The content of the file does not match its name."),
    "file_old_format": Kind(415, "The file is a workbook of Excel 97-2003."),
    "malformed_body": Kind(422, "The body is not JSON."),
    "validation_failed": Kind(422, "A parameter or a field of the body is missing or wrong."),
    "malformed_form": Kind(422, "The form is malformed or has no file."),
    "file_name_bad": Kind(422, "The file name is not valid."),
    "file_empty": Kind(422, "The file is empty."),
    "file_encrypted": Kind(422, "The file is protected with a password."),
    "file_damaged": Kind(422, "The file is damaged."),
    "company_required": Kind(422, "Imports of this type belong to a company."),
    "file_refused": Kind(422, "The file cannot be imported."),
    "needs_transactions": Kind(422, "This import requires transactions, and the database has none."),
    "unknown_import_type": Kind(422, "No importer has this name, or none was given."),
    "unknown_job_type": Kind(422, "No handler is registered for this job type."),
    "bad_payload": Kind(422, "The payload does not match the handler's signature."),
    "bad_setting": Kind(422, "A name or an option is outside its limits."),
    "value_refused": Kind(422, "The database cannot hold a value of the request."),
    "bad_cursor": Kind(422, "The cursor is not valid."),
    "job_failed": Kind(422, "In resilient mode the job ran immediately and failed."),
    "idempotency_key_reused": Kind(422, "This Idempotency-Key was used for another request."),
    "too_many_requests": Kind(429, "Too many requests; try again after the time in Retry-After."),
    "queue_full": Kind(429, "The queue is full; try again later."),
    "headers_too_large": Kind(431, "The request line and headers are larger than the limit."),
    "internal_error": Kind(500, "Unexpected error; see the server's log."),
    "store_unavailable": Kind(503, "The database or the folder of imports cannot be used; try again later."),
    "not_ready": Kind(503, "The database schema is not ready for this release."),
    "timeout": Kind(504, "The response took too long."),
}

_NOT_READY = ("schema_missing", "schema_too_new", "schema_tampered")
_WAIT = ("queue_full", "store_unavailable", "not_ready", "too_many_requests", "idempotency_in_progress")


@dataclass(eq=False)
class Problem(Exception):
    """An exception that is answered with problem+json."""

    code: str
    detail: str
    headers: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return PROBLEMS[self.code].status

    def response(self) -> Response:
        """Return the problem+json response, with Retry-After or WWW-Authenticate if the code needs it."""
        kind = PROBLEMS[self.code]
        headers = dict(self.headers)
        if self.code in _WAIT:
            headers.setdefault("retry-after", str(_WAIT_SECONDS))
        if kind.status == 401:
            headers["www-authenticate"] = 'Bearer realm="rowlock"'
        body = {
            "type": f"urn:rowlock:problem:{self.code}",
            "title": kind.title,
            "status": kind.status,
            "code": self.code,
            "detail": self.detail,
            **self.more,
        }
        return Response(orjson.dumps(body), kind.status, headers | {"cache-control": "no-store"}, MEDIA_TYPE)


def logged(error: RowlockError, path: str, redact: Redactor) -> Problem:
    """Return the problem for a RowlockError, and log the reason of a StoreError: most of their answers hide it."""
    if isinstance(error, StoreError):
        logs.get().error("http.store_failed", path=path, reason=redact.text(str(error)))
    return problem_of(error)


def problem_of(error: RowlockError) -> Problem:
    """Return the problem for a RowlockError."""
    if isinstance(error, DuplicateJob):
        return Problem(
            error.code, str(error), more={"existingJobId": error.existing_job_id, "existingRemoved": error.removed}
        )
    if isinstance(error, DuplicateImport):
        return Problem(error.code, str(error), more={"existingImportId": error.existing_import_id})
    if isinstance(error, FileRefused):
        return Problem(error.code if error.code in PROBLEMS else "file_refused", str(error), more=dict(error.more))
    if isinstance(error, ValueRefused):  # the database's message may name the server or show the value
        detail = "a value is too large, malformed or violates a constraint of the database; do not retry it unchanged"
        return Problem(error.code, detail)
    if isinstance(error, StoreError) and not isinstance(error, FolderUnavailable):  # may name addresses and paths
        if error.code in _NOT_READY:
            return Problem("not_ready", "the database schema is not ready for this release; see the server's log")
        if isinstance(error, StatementRefused | NoTransactions):  # a retry would be refused, too
            return Problem("internal_error", "an operator must correct the configuration; see the server's log")
        return Problem(
            "store_unavailable",
            "the database failed this request; see the server's log",
        )
    if error.code in PROBLEMS:
        return Problem(error.code, str(error))
    return Problem("internal_error", "unexpected error; see the server's log")
