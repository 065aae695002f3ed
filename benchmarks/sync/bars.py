"""The bars of the sync, and its section of the results page."""

from __future__ import annotations

from typing import Any

from benchmarks.bars import Bar, Summary, figure
from benchmarks.markdown import number, table
from benchmarks.sync.app import CALLS, SECONDS

PART = "sync"
CASES = ("sync-postgresql", "sync-sqlite")

SYNC_BARS: tuple[Bar, ...] = (
    Bar(
        "contact updates, one process ÷ the time that the limits allow",
        1.3,
        False,
        "x",
        figure(PART, CASES[0], "share"),
    ),
    Bar("the same on SQLite", 1.3, False, "x", figure(PART, CASES[1], "share")),
    Bar("calls above the limit in any window", 0, False, "", figure(PART, CASES[0], "overruns")),
)


def section(summary: Summary, about: dict[str, Any]) -> str:
    keys = ("updates", "calls", "seconds", "allowed_seconds", "share", "first_ms", "most", "client_cpu_us")
    titles = ["updates", "calls", "s", "s allowed", "÷", "enqueue to first call, ms", "most in a window", "CPU µs"]
    rows = [[case, *(number(summary[PART].get(case, {}).get(key)) for key in keys)] for case in CASES]
    lines = [
        "## Outbound sync: contact updates to a stand-in of HubSpot, one process\n",
        table(["store", *titles], rows),
        f"- {CALLS} calls in any {SECONDS:g} s, 100 updates in a call, each of another contact. From the call that",
        "  enqueues them into an idle worker until the last one is done on the other side, by its clock.",
        "- Allowed: a caller that never waits longer than it must has its last call there after so long.",
        "",
    ]
    return "\n".join(lines)
