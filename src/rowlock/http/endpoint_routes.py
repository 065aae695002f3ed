"""Routes of endpoints, from their declarations: see `rowlock.management.endpoint`.

`derive` makes the function, too; `route` takes one that is written by hand, for what an answer needs beside
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
from rowlock.management.endpoint import (
    Endpoint,
    Parameter,
    answer_of,
    endpoint_of,
    parameters_of,
    signature_of,
)
from rowlock.management.schemas.base import Envelope

Function = Callable[..., Awaitable[Response]]
Method = Callable[..., Any]


def derive(router: APIRouter, *methods: Method) -> None:
    """Add the routes of these methods, which answer with what the method returns."""
    for method in methods:
        route(router, method)(_function(method, endpoint_of(method)))


def route(router: APIRouter, method: Method, responses: Responses | None = None) -> Callable[[Function], Function]:
    """Add the route of a method with this function, which takes the request, the caller and the parameters."""
    endpoint, kind = endpoint_of(method), answer_of(method)

    def add(function: Function) -> Function:
        _sign(function, method, endpoint)
        router.add_api_route(
            endpoint.path,
            function,
            methods=[endpoint.method],
            response_model=Envelope.around(kind) if endpoint.enveloped else kind,
            status_code=endpoint.status,
            responses=fails(*endpoint.fails) | (NOT_MODIFIED if endpoint.method == "GET" else {}) | (responses or {}),
            tags=[endpoint.tag],
            name=method.__name__,
            summary=endpoint.summary,
            description=_description(method),
            route_class_override=APIRoute if endpoint.body is None else Posted,
        )
        return function

    return add


def _description(method: Method) -> str:
    return (inspect.getdoc(method) or "").partition("\n\n")[0]


def _function(method: Method, endpoint: Endpoint) -> Function:
    name, queries = method.__name__, endpoint.method == "GET"

    async def function(request: Request, caller: Caller, given: Any = None, **others: Any) -> Response:
        if given is not None:
            others |= dict(given)
        found = await getattr(caller.management, name)(**others)
        found = Envelope(data=found) if endpoint.enveloped else found
        return polled(request, found) if queries else answer(found)

    return function


def _sign(function: Function, method: Method, endpoint: Endpoint) -> None:
    """Give a function the signature that FastAPI derives the route from, with the declared role and parameters."""
    own = _parameters(method, endpoint)
    if endpoint.body is not None:
        own = [_required("given", endpoint.body), *(each for each in own if each.name in endpoint.names)]
    caller = Annotated[Caller, Depends(Needs(endpoint.role, fleet=endpoint.fleet))]
    signature = [_required("request", Request), _required("caller", caller), *own]
    function.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]


def _required(name: str, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)


def _parameters(method: Method, endpoint: Endpoint) -> list[inspect.Parameter]:
    sent = parameters_of(method)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=parameter.default,
            annotation=_annotation(name, sent[name], endpoint),
        )
        for name, parameter in signature_of(method).parameters.items()
        if name in sent
    ]


def _annotation(name: str, parameter: Parameter, endpoint: Endpoint) -> Any:
    about = parameter.about or None
    if name in endpoint.names:
        return Annotated[
            parameter.kind, Path(description=about, examples=[parameter.example] if parameter.example else None)
        ]
    return Annotated[parameter.kind, Query(alias=to_camel(name), description=about)]
