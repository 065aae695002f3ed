"""The OpenAPI description: FastAPI's, completed with every error of every route."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from rowlock.http.middleware.auth import OPEN, Needs
from rowlock.http.problem import MEDIA_TYPE, PROBLEMS, ProblemSchema

Responses = dict[int | str, dict[str, Any]]

_ALWAYS = (408, 422, 429, 500, 503, 504)  # statuses that any request may get
_PROBLEM = {"$ref": "#/components/schemas/Problem"}

_made: dict[str, dict[str, Any]] = {}

NOT_MODIFIED: Responses = {304: {"description": "Not modified: the ETag matches If-None-Match."}}


def fails(*statuses: int) -> Responses:
    """Return the OpenAPI responses for these error statuses."""
    return {status: _failure(status) for status in statuses}


def describe(api: FastAPI) -> dict[str, Any]:
    """Return the whole description; built once per process, since every application has the same routes."""
    if "schema" not in _made:
        schema = get_openapi(
            title=api.title,
            version=api.version,
            description=api.description,
            routes=api.routes,
            tags=api.openapi_tags,
            servers=api.servers,
        )
        components = schema.setdefault("components", {})
        components["securitySchemes"] = {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "`rowlock token create` creates a token: `rlk_` and 43 characters.",
            }
        }
        schemas = components.setdefault("schemas", {})
        problem = ProblemSchema.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["Problem"] = problem
        for unused in ("HTTPValidationError", "ValidationError", "ImportStatus", "RunStatus", "Status"):
            schemas.pop(unused, None)
        schema["security"] = [{"token": []}]
        for route in api.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                _finish(schema["paths"][route.path_format], route)
        _made["schema"] = schema
    return _made["schema"]


def _finish(path: dict[str, Any], route: APIRoute) -> None:
    """Add the common parts to a route: errors, the required role, ETags, the Idempotency-Key."""
    for method in route.methods or ():
        operation = path[method.lower()]
        statuses = [*_ALWAYS]
        if route.path in OPEN:
            operation["security"] = []
            statuses = [500]
        else:
            needs = next(d.call for d in route.dependant.dependencies if isinstance(d.call, Needs))
            statuses += [401, 403]
            required = f"Requires the role **{needs.role}**" + (
                ", and a token for all companies" if needs.fleet else ""
            )
            operation["description"] = "\n\n".join(filter(None, [operation.get("description"), f"{required}."]))
            operation["x-role"] = needs.role.value
        if route.param_convertors:
            statuses.append(404)  # a name with a slash or line break may match no route
        if "304" in operation["responses"]:
            operation.setdefault("parameters", []).append(_IF_NONE_MATCH)
            operation["responses"]["200"]["headers"] = {"ETag": {"schema": {"type": "string"}}}
        if method == "POST":
            statuses += [409, 413, 415]
            if not operation.pop("x-upload", False):
                operation.setdefault("parameters", []).append(_KEY)
        for status in statuses:
            operation["responses"].setdefault(str(status), {})
            if status == 422 or not operation["responses"][str(status)]:
                operation["responses"][str(status)] = _failure(status)
        operation["responses"] = dict(sorted(operation["responses"].items()))


def _failure(status: int) -> dict[str, Any]:
    codes = [code for code, kind in PROBLEMS.items() if kind.status == status]
    described: dict[str, Any] = {
        "description": "; ".join(f"`{code}`: {PROBLEMS[code].title}" for code in codes),
        "content": {MEDIA_TYPE: {"schema": _PROBLEM}},
    }
    if status in (429, 503):
        described["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return described


_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of an earlier response; the response is 304 if nothing has changed.",
    "schema": {"type": "string"},
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A text of your own, new for each request: sent again with the same one, the request is answered as "
    "before and not done again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}
