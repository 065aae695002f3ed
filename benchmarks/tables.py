"""The results page in Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.bars import Summary
from benchmarks.imports import tables as imports
from benchmarks.imports.bars import PART
from benchmarks.markdown import number, share, table
from benchmarks.sync import bars as sync
from benchmarks.systems import System

_RATES = (
    ("one", "one by one"),
    ("bulk", "in bulk"),
    ("concurrent", "50 at once"),
    ("drain", "drain"),
    ("drain-2", "two processes"),
    ("batch", "batch handler"),
    ("drain-other", "drain, other settings"),
    ("drain-other-2", "two, other settings"),
)
_COSTS = (
    ("commits", "commits"),
    ("wal_bytes", "WAL bytes"),
    ("wal_full_page_bytes", "of them page images"),
    ("client_cpu_us", "client CPU µs"),
    ("server_cpu_us", "server CPU µs"),
    ("settled_after_ms", "last start to acknowledged, ms"),
)


def page(summary: Summary, verdicts: list[dict[str, Any]], systems: list[System], about: dict[str, Any]) -> str:
    parts = [_heading(about), "## Bars\n", _bars(verdicts)]
    if systems:
        parts += _of_jobs(summary, systems, about)
    if PART in summary:
        parts.append(imports.section(summary, about))
    if sync.PART in summary:
        parts.append(sync.section(summary, about))
    return "\n".join(parts)


def _of_jobs(summary: Summary, systems: list[System], about: dict[str, Any]) -> list[str]:
    return [
        "## Jobs per second (drain: Rowlock at its defaults, the others at their best; other settings: the reverse)\n",
        _rates(summary, systems),
        "## Enqueue to start, idle worker, milliseconds\n",
        _latency(summary, systems),
        "## With a full store, and with an old transaction open (Rowlock at its defaults, the others at their best)\n",
        _depth(summary, systems, about),
        "## What one job costs, one process (Rowlock at its defaults, the others at their best)\n",
        _costs(summary, systems),
        "## What an idle worker costs, default settings, one process\n",
        _idle(summary, systems),
        "## Enqueue over HTTP, one server process, keep-alive\n",
        _http(summary, systems),
        "## The overview of a full store, one server process\n",
        _pages(summary, systems),
        "## How it was measured\n",
        _method(systems, about),
    ]


def _heading(about: dict[str, Any]) -> str:
    server = f"PostgreSQL {about['postgresql']}" if "postgresql" in about else "no PostgreSQL"
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    settings = ", ".join(f"{name}={value}" for name, value in about.get("postgresql_settings", {}).items())
    lines = [
        "# Rowlock beside other job queues, and other ways to import a file\n",
        f"Commit {about['commit']}, {about['date']}, {about['minutes']} minutes, load {about['load']} at the start.",
        f"{about['cpu']}, {about['memory']}, {about['system']}, {about['filesystem']}.",
        f"{server} ({settings}), Python {about['python']}, Node {about.get('node', 'absent')},",
        f"SQLite {about['sqlite']} for the peers.",
        f"{versions}.\n" if versions else "",
        "Repeat it with `make bench` (`python -m benchmarks`); a short one with `python -m benchmarks --quick`.\n",
    ]
    return "\n".join(lines)


def _bars(verdicts: list[dict[str, Any]]) -> str:
    rows = [[v["bar"], v["wanted"], v.get("shown", "–"), v["verdict"]] for v in verdicts]
    return table(["bar", "wanted", "measured", ""], rows)


def _rates(summary: Summary, systems: list[System]) -> str:
    rows = [
        [system.name, system.store, *(_rate(summary.get(system.name, {}).get(name)) for name, _ in _RATES)]
        for system in systems
    ]
    return table(["system", "store", *(title for _, title in _RATES)], rows)


def _latency(summary: Summary, systems: list[System]) -> str:
    keys = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
    rows = []
    for system in systems:
        found = summary.get(system.name, {}).get("latency", {})
        rows.append([system.name, *(number(found.get(key)) for key in keys)])
    return table(["system", "p50", "p95", "p99", "worst"], rows)


def _depth(summary: Summary, systems: list[System], about: dict[str, Any]) -> str:
    rows = []
    for system in systems:
        found = summary.get(system.name, {})
        deep, old = found.get("deep", {}), found.get("deep-old", {})
        filled = deep.get("filled", {})
        plain = found.get("drain", {})
        rows.append(
            [
                system.name,
                number(filled.get("waiting")),
                number(filled.get("finished")),
                _rate(deep or None),
                share(deep.get("rate"), plain.get("rate")),
                share(deep.get("handler_rate"), plain.get("handler_rate")),
                _rate(old or None),
                share(old.get("rate"), deep.get("rate")),
                filled.get("how", system.note if not system.fills else ""),
            ]
        )
    titles = ["waiting", "finished", "jobs/s", "÷ plain drain", "÷ plain, until the last start"]
    return table(["system", *titles, "old transaction, jobs/s", "÷ without it", "how filled"], rows)


def _costs(summary: Summary, systems: list[System]) -> str:
    rows = []
    for system in systems:
        found = summary.get(system.name, {})
        drain = found.get("drain", {})
        statements = found.get("statements", {}).get("statements_logged")
        costs = [number(drain.get(key)) for key, _ in _COSTS]
        rows.append([system.name, number(statements), *costs, number(drain.get("other_cores"))])
    return table(["system", "statements", *(title for _, title in _COSTS), "others' cores"], rows)


def _idle(summary: Summary, systems: list[System]) -> str:
    found = {system.name: summary.get(system.name, {}).get("idle", {}) for system in systems}
    rows = [[name, number(idle.get("statements_per_minute"))] for name, idle in found.items() if idle]
    return table(["system", "statements per minute"], rows)


def _pages(summary: Summary, systems: list[System]) -> str:
    keys = ("jobs", "first_byte_ms", "first_byte_max_ms", "shared_ms", "weight_kb", "one_statements", "open_statements")
    titles = ["jobs", "first byte, ms", "worst", "look shared, ms", "kB in all", "statements, 1 page", "50 pages"]
    found = {system.name: summary.get(system.name, {}).get("pages", {}) for system in systems}
    rows = [[name, *(number(pages.get(key)) for key in keys)] for name, pages in found.items() if pages]
    return table(["system", *titles], rows)


def _http(summary: Summary, systems: list[System]) -> str:
    keys = ("rate", "p50_ms", "p99_ms", "empty_rate", "empty_p99_ms", "share")
    found = {system.name: summary.get(system.name, {}).get("http", {}) for system in systems}
    rows = [[name, *(number(http.get(key)) for key in keys)] for name, http in found.items() if http]
    titles = ["requests/s", "p50 ms", "p99 ms", "empty route, requests/s", "p99 ms", "share"]
    return table(["system", *titles], rows)


def _method(systems: list[System], about: dict[str, Any]) -> str:
    plan = about["plan"]
    lines = [
        f"- Every figure is the median of {plan['repeat']}, the systems taking turns; statements and idle once.",
        f"- A drain has {plan['drained']:,} jobs a process, counted from the first handler's start (of the process",
        "  that is last to begin) until the store holds nothing unacknowledged.",
        f"- ᶜ stopped after {plan['drain_seconds_max']:g} s: the rate of what was started by then. ! a job ran twice.",
        "- The job appends 24 bytes (number, monotonic ns, process) to a file on tmpfs, in which the driver counts.",
        "- Before each drain ANALYZE and CHECKPOINT: the WAL has the page images that follow a checkpoint.",
        "- Commits: pg_stat_database.xact_commit from before the worker starts until after it has stopped.",
        "- Statements: the server's log with log_statement=all, in drains of their own that are not timed.",
        "- CPU: /proc schedstat of the process trees, from the first handler's start until all is acknowledged.",
        "- Old transaction: REPEATABLE READ with an xid, opened before the jobs are enqueued; on SQLite an open read.",
        f"- Latency: {plan['latency_jobs']} jobs at {plan['latency_per_second']}/s, from the call to the handler.",
        "",
    ]
    rows = []
    for system in systems:
        given = about["settings"].get(system.name, {})
        rows.append([system.name, *(_words(given.get(key)) for key in ("default", "best", "latency")), system.note])
    return "\n".join(lines) + "\n" + table(["system", "default", "best", "for latency", "note"], rows)


def _words(settings: dict[str, Any] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in (settings or {}).items()) or "as it comes"


def _rate(found: dict[str, Any] | None) -> str:
    if found is None or "rate" not in found:
        return "failed" if found and "error" in found else "–"
    marks = ("ᶜ" if found.get("capped") else "") + ("!" if found.get("duplicates") else "")
    return number(found["rate"]) + marks
