"""`rowlock metrics`: the metrics of all workers in Prometheus's text format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rowlock.cli import options
from rowlock.cli.management import asks

if TYPE_CHECKING:
    from rowlock.cli.management import Management
    from rowlock.cli.output import Output


def register(app: typer.Typer) -> None:
    app.command(
        help=options.examples(
            "Print the metrics of all workers, in Prometheus's text format.",
            "rowlock metrics",
            "rowlock metrics > /var/lib/node_exporter/rowlock.prom",
        )
    )(metrics)


@asks()
async def metrics(management: Management, out: Output) -> None:
    text = (await management.metrics()).decode()
    if out.as_json:
        out.json({"measures": _measures(text)})
        return
    for line in text.splitlines():
        out.line(line)


def _measures(text: str) -> list[dict[str, Any]]:
    """Parse the text into a list of samples."""
    from rowlock.errors import SettingsError

    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise SettingsError("metrics need the extra `metrics`: pip install 'rowlock[metrics]'") from None
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return [{"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in samples]
