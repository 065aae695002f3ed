"""Decorators for commands that use the management service, locally or of a server, or the application itself.

    @commands.command(...)
    @asks()
    async def show(management: Management, out: Output, id: JobId) -> None: ...

They add the common options: `--app`, `--database`, `--server`, `--token-file`, `--json`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError

if TYPE_CHECKING:
    from rowlock.client import Client
    from rowlock.management import ManagementService

    Management = ManagementService | Client

Work = Callable[..., Awaitable[int | None]]
Command = Callable[..., int]

_TOKEN_BYTES_MAX = 4_096
_LOCAL = {"app": (options.App, None), "database": (options.Database, None)}
_REMOTE = {"server": (options.Server, None), "token_file": (options.TokenFile, None)}
_FORM = {"json": (options.Json, False)}


def asks(*, create: bool = False, needs_app: bool = False) -> Callable[[Work], Command]:
    """Decorate a command that uses the management service.

    With `create`, it sets up an empty local database first. With `needs_app`, it fails if it works locally and no
    application is named: what it does depends on what the application declares.
    """

    def decorate(work: Work) -> Command:
        def run(context: typer.Context, **given: Any) -> int:
            place = _Place(**{name: given.pop(name) for name in (*_LOCAL, *_REMOTE, *_FORM)})
            server = _server(context, place)
            if server is not None:
                return _ask_server(server, place, work, given)
            return _ask_here(place, work, given, create, needs_app)

        return _with_options(run, work, _LOCAL | _REMOTE | _FORM)

    return decorate


def works(*, create: bool = False, check: bool = True) -> Callable[[Work], Command]:
    """Decorate a command that uses the application; it checks the schema first or, with `create`, sets it up."""

    def decorate(work: Work) -> Command:
        def run(context: typer.Context, **given: Any) -> int:
            place = _Place(**{name: given.pop(name) for name in (*_LOCAL, *_FORM)})
            return _work_here(place, work, given, create=create, check=check)

        return _with_options(run, work, _LOCAL | _FORM)

    return decorate


@dataclass(frozen=True, slots=True)
class _Place:
    """The common options: where a command works, and in which form it answers."""

    app: str | None
    database: str | None
    json: bool
    server: str | None = None
    token_file: str | None = None


def _with_options(run: Command, work: Work, added: dict[str, tuple[Any, Any]]) -> Command:
    """Give `run` the parameters of `work` without the first two, plus the added options."""
    own = list(inspect.signature(work).parameters.values())[2:]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
    types = inspect.get_annotations(run, globals=getattr(work, "__globals__", {}), eval_str=True)
    parameters = [parameter.replace(annotation=types[parameter.name]) for parameter in own]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters.insert(0, inspect.Parameter("context", kind, annotation=typer.Context))
    for name, (annotation, default) in added.items():
        parameters.append(inspect.Parameter(name, kind, annotation=annotation, default=default))
    run.__name__, run.__doc__ = getattr(work, "__name__", "command"), work.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer looks at
    return run


# -- locally ---------------------------------------------------------------------------------------


def _ask_here(place: _Place, work: Work, given: dict[str, Any], create: bool, needs_app: bool) -> int:
    async def ask(app: Any, out: Any, **given: Any) -> int | None:
        from rowlock.management import ManagementService

        return await work(ManagementService(app), out, **given)

    return _work_here(place, ask, given, create=create, needs_app=needs_app)


def _work_here(
    place: _Place, work: Work, given: dict[str, Any], *, create: bool, check: bool = True, needs_app: bool = False
) -> int:
    import asyncio

    from rowlock.cli.application import full_name, import_app, ready
    from rowlock.cli.output import Output
    from rowlock.errors import StoreUnavailable
    from rowlock.observe import logs

    app = import_app(full_name(place.app) if needs_app else place.app, place.database)
    logs.configure("warning", app.settings.log_format, app.redact)  # the command's output says the rest

    async def whole() -> int:
        async with app:
            if create:
                try:
                    await ready(app)
                except StoreUnavailable:
                    if app.engine.producer.needs_store:
                        raise
            elif check:
                await app.store.check_schema()
            return await work(app, Output(place.json), **given) or 0

    return asyncio.run(whole())


# -- through a server ------------------------------------------------------------------------------


def _server(context: typer.Context, place: _Place) -> str | None:
    """Return the server to use, or None to work locally; the command line overrides the environment."""
    if place.server is None:
        if place.token_file is not None:
            raise UsageError("--token-file requires --server")
        return None
    here = [f"--{name}" for name in _LOCAL if _stands(context, name)]
    if not here:
        return place.server
    if _stands(context, "server") or place.token_file is not None:
        raise UsageError(f"--server and {' and '.join(here)} contradict each other: remove one of them")
    return None


def _stands(context: typer.Context, name: str) -> bool:
    """Return whether an option was given on the command line, not in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _ask_server(url: str, place: _Place, work: Work, given: dict[str, Any]) -> int:
    import asyncio

    from rowlock.cli.output import Output
    from rowlock.client import Client

    client = Client(url, _token(place.token_file))

    async def whole() -> int:
        async with client:
            return await work(client, Output(place.json), **given) or 0

    return asyncio.run(whole())


def _token(file: str | None) -> str:
    if file is None:
        token = os.environ.get("ROWLOCK_TOKEN", "").strip()
        if not token:
            raise UsageError("--server requires a token: set ROWLOCK_TOKEN or --token-file; see `rowlock token create`")
        return token
    try:
        with open(file, "rb") as opened:
            token = opened.read(_TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError(f"--token-file {file}: {error.strerror}") from None
    if not token:
        raise UsageError(f"--token-file {file}: the file contains no token")
    return token
