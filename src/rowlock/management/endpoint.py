"""Endpoints: methods of the management service that are also routes of the HTTP API, declared where they are written.

    @post("/api/v1/queue/{job_id}/retry", "jobs", "Retry a job", fails=(404, 409))
    async def retry(self, job_id: JobIdParameter) -> JobSchema:
        "Retries a failed or cancelled job, with fresh attempts."

The declaration and the signature are the single source. `rowlock.http.endpoint_routes` makes the route and its OpenAPI
description from them, `rowlock.client.remote` the method of the client. The first paragraph of the docstring is the
description; the others are for callers in Python.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from rowlock.management.schemas.base import RequestSchema, Schema
from rowlock.storage.access import Role

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "endpoint"


@dataclass(frozen=True, slots=True)
class Parameter:
    """How a parameter is sent, in an Annotated type. Parameters without it are not sent: they are for callers here."""

    about: str = ""
    kind: Any = None  # the type that HTTP accepts (default: the annotated one)
    example: str | None = None
    check: Callable[[Any], Any] = lambda value: value  # returns what the client sends; raises what a local call raises


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The declaration of an endpoint."""

    method: Literal["GET", "POST"]
    path: str  # with the names of parameters in braces; {name:path} may contain slashes
    tag: str
    summary: str
    role: Role
    fleet: bool  # refuses tokens of one company
    enveloped: bool  # answered as {success, data}
    fails: tuple[int, ...]  # error statuses beside those of every request
    status: int
    body: type[RequestSchema] | None  # parameters that are not in the path are its fields

    @property
    def names(self) -> list[str]:
        """The names of the parameters in the path."""
        return re.findall(r"{(\w+)", self.path)


def get(
    path: str,
    tag: str,
    summary: str,
    *,
    role: Role = Role.VIEWER,
    fleet: bool = False,
    enveloped: bool = False,
    fails: tuple[int, ...] = (),
) -> Callable[[F], F]:
    """Declare a method as a query, whose parameters are in the path and the query."""
    return _declared(Endpoint("GET", path, tag, summary, role, fleet, enveloped, fails, 200, None))


def post(
    path: str,
    tag: str,
    summary: str,
    *,
    role: Role = Role.OPERATOR,
    fleet: bool = False,
    enveloped: bool = False,
    fails: tuple[int, ...] = (),
    status: int = 200,
    body: type[RequestSchema] | None = None,
) -> Callable[[F], F]:
    """Declare a method as a command, whose parameters are in the path and the body."""
    return _declared(Endpoint("POST", path, tag, summary, role, fleet, enveloped, fails, status, body))


def _declared(endpoint: Endpoint) -> Callable[[F], F]:
    def declare(method: F) -> F:
        setattr(method, _ATTRIBUTE, endpoint)
        return method

    return declare


def endpoint_of(method: Callable[..., Any]) -> Endpoint:
    """Return the declaration of a method."""
    found: Endpoint = getattr(method, _ATTRIBUTE)
    return found


def endpoints_of(service: type) -> dict[str, Endpoint]:
    """Return the declarations of a service, by the names of its methods."""
    return {
        name: endpoint_of(method)
        for name, method in inspect.getmembers(service, inspect.isfunction)
        if hasattr(method, _ATTRIBUTE)
    }


@cache
def signature_of(method: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with its annotations evaluated."""
    return inspect.signature(method, eval_str=True)


def answer_of(method: Callable[..., Any]) -> type[Schema]:
    """Return the schema that a method returns."""
    found: type[Schema] = signature_of(method).return_annotation
    return found


def parameters_of(method: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters that are sent, by name."""
    found = {}
    for name, parameter in signature_of(method).parameters.items():
        if get_origin(parameter.annotation) is Annotated:
            kind, *metadata = get_args(parameter.annotation)
            for each in metadata:
                if isinstance(each, Parameter):
                    found[name] = (
                        each if each.kind is not None else Parameter(each.about, kind, each.example, each.check)
                    )
    return found
