"""Routes of operations, from their declarations: see `rowlock.management.operation`.

`derive` makes the endpoint, too; `route` takes one that is written by hand, for what an operation's answer needs beside
the schema: another status, a role for a part of it, the reserved id of an idempotency key.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response

from rowlock.http.json_response import answer, polled
from rowlock.http.middleware.auth import Caller, Needs
from rowlock.http.openapi import NOT_MODIFIED, Responses, fails
from rowlock.http.post_routes import Posted
from rowlock.management.operation import (
    Operation,
    Parameter,
    answer_of,
    operation_of,
    parameters_of,
    signature_of,
)
from rowlock.management.schemas.base import Envelope

Endpoint = Callable[..., Awaitable[Response]]
Method = Callable[..., Any]


def derive(router: APIRouter, *methods: Method) -> None:
    """Add the routes of these methods, which answer with what the method returns."""
    for method in methods:
        route(router, method)(_endpoint(method, operation_of(method)))


def route(router: APIRouter, method: Method, responses: Responses | None = None) -> Callable[[Endpoint], Endpoint]:
    """Add the route of a method with this endpoint, which takes the request, the caller and the parameters."""
    operation, kind = operation_of(method), answer_of(method)

    def add(endpoint: Endpoint) -> Endpoint:
        _sign(endpoint, method, operation)
        router.add_api_route(
            operation.path,
            endpoint,
            methods=[operation.method],
            response_model=Envelope.around(kind) if operation.enveloped else kind,
            status_code=operation.status,
            responses=fails(*operation.fails) | (NOT_MODIFIED if operation.method == "GET" else {}) | (responses or {}),
            tags=[operation.tag],
            name=method.__name__,
            summary=operation.summary,
            description=_description(method),
            route_class_override=APIRoute if operation.body is None else Posted,
        )
        return endpoint

    return add


def _description(method: Method) -> str:
    return (inspect.getdoc(method) or "").partition("\n\n")[0]


def _endpoint(method: Method, operation: Operation) -> Endpoint:
    name, queries = method.__name__, operation.method == "GET"

    async def endpoint(request: Request, caller: Caller, given: Any = None, **others: Any) -> Response:
        if given is not None:
            others |= dict(given)
        found = await getattr(caller.management, name)(**others)
        found = Envelope(data=found) if operation.enveloped else found
        return polled(request, found) if queries else answer(found)

    return endpoint


def _sign(endpoint: Endpoint, method: Method, operation: Operation) -> None:
    """Give an endpoint the signature that FastAPI derives the route from, with the declared role and parameters."""
    own = _parameters(method, operation)
    if operation.body is not None:
        own = [_required("given", operation.body), *(each for each in own if each.name in operation.names)]
    caller = Annotated[Caller, Depends(Needs(operation.role, fleet=operation.fleet))]
    signature = [_required("request", Request), _required("caller", caller), *own]
    endpoint.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]


def _required(name: str, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)


def _parameters(method: Method, operation: Operation) -> list[inspect.Parameter]:
    sent = parameters_of(method)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=parameter.default,
            annotation=_annotation(name, sent[name], operation),
        )
        for name, parameter in signature_of(method).parameters.items()
        if name in sent
    ]


def _annotation(name: str, parameter: Parameter, operation: Operation) -> Any:
    about = parameter.about or None
    if name in operation.names:
        return Annotated[
            parameter.kind, Path(description=about, examples=[parameter.example] if parameter.example else None)
        ]
    return Annotated[parameter.kind, Query(alias=to_camel(name), description=about)]
