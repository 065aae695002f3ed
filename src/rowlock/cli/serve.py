"""`rowlock serve`: the HTTP API, without workers."""

from __future__ import annotations

import gc
import os
import socket
from typing import Annotated

import typer

from rowlock.cli import options


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Serve the HTTP API until SIGTERM or Ctrl-C. `rowlock token create` creates tokens.",
            "rowlock serve",
            "rowlock serve --host 0.0.0.0 --port 8080",
        )
    )(serve)


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen on. Default: ROWLOCK_HTTP_HOST, or 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
    port: options.Port = None,
    descriptor: Annotated[
        int | None, typer.Option(hidden=True, min=0, help="A listening socket, from `rowlock up`.")
    ] = None,
    app: options.App = None,
    database: options.Database = None,
    json: Annotated[bool, typer.Option("--json", help="Print the address in JSON, and log in JSON lines.")] = False,
) -> int:
    from rowlock.cli import api
    from rowlock.cli.application import full_name, logging_app, ready, run
    from rowlock.cli.output import Output

    name, channel = full_name(app), None
    if descriptor is not None:
        database, channel = api.take_order(descriptor)
    application = logging_app(name, database, json)
    web, settings = api.serving(), application.settings
    if descriptor is not None:
        bound = socket.socket(fileno=descriptor)
    else:
        bound = web.bind(host or settings.http_host, settings.http_port if port is None else port)

    async def whole() -> int:
        async with application:
            await ready(application)
            if descriptor is None:
                url, out = web.address(bound), Output(json)
                out.tell({"url": url, "pid": os.getpid()}, f"serving {url}, until Ctrl-C")
                out.flush()
            gc.collect()
            gc.freeze()  # loaded modules stay: collecting them again would only delay requests
            await api.serve_until_told(application, bound, channel)
        return 0

    with bound:
        return run(whole())
