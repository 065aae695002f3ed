"""`rowlock metrics`: the numbers of the whole fleet in Prometheus's text format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rowlock.cli import options

if TYPE_CHECKING:
    from rowlock.app import Rowlock
    from rowlock.cli.output import Output


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Print the metrics of all workers, in Prometheus's text format.",
            "rowlock metrics",
            "rowlock metrics > /var/lib/node_exporter/rowlock.prom",
        )
    )(metrics)


def metrics(
    app: options.App = options.APP_DEFAULT, database: options.Database = None, json: options.Json = False
) -> int:
    from rowlock.cli.session import command

    async def work(app: Rowlock, out: Output) -> None:
        if json:
            from rowlock.jobs.payload import loads

            found = (await app.store.measures()).items()
            out.json({"measures": [{"name": m.name, "labels": loads(m.labels), "value": value} for m, value in found]})
            return
        from rowlock.observe.metrics import exposition

        text = (await exposition(app.store)).decode()
        for line in text.splitlines():
            out.line(line)

    return command(app, database, json, work)
