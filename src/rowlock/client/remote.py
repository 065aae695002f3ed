"""Methods of the client, from the declarations of the management service: see `rowlock.management.endpoint`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import quote

from pydantic.alias_generators import to_camel

from rowlock.client.wire import Wire
from rowlock.management.endpoint import answer_of, endpoint_of, parameters_of, signature_of

P = ParamSpec("P")
R = TypeVar("R")


class Connected(Protocol):
    """What has a connection to a server."""

    _wire: Wire


def remote(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[Connected, P], Coroutine[Any, Any, R]]:
    """Return the method of a client with the parameters and the result of a declared endpoint."""
    endpoint = endpoint_of(method)

    @wraps(method)
    async def call(client: Connected, /, *args: P.args, **kwargs: P.kwargs) -> R:
        sent, arguments = parameters_of(method), signature_of(method).bind(client, *args, **kwargs).arguments
        given = {name: sent[name].check(arguments[name]) for name in sent if arguments.get(name) is not None}
        path = path_of(endpoint.path, given)
        fields = {to_camel(name): value for name, value in given.items() if name not in endpoint.names}
        kind: Any = answer_of(method)
        if endpoint.method == "GET":
            return await client._wire.get(kind, path, enveloped=endpoint.enveloped, **fields)  # type: ignore[no-any-return]
        return await client._wire.post(kind, path, fields or None, enveloped=endpoint.enveloped)  # type: ignore[no-any-return]

    return call


def path_of(path: str, given: dict[str, Any]) -> str:
    """Fill the names of a path; dots are quoted, too, as they could change the path."""
    parts = {name: quote(str(value), safe="").replace(".", "%2E") for name, value in given.items()}
    return path.replace(":path}", "}").format(**parts)
