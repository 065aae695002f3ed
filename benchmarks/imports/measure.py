"""The import part of the benchmark: runs its groups in turns, repetition by repetition."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from benchmarks import report
from benchmarks.clients import ClientError
from benchmarks.imports.bars import PART
from benchmarks.imports.ground import Ground
from benchmarks.imports.groups import GROUPS, Group
from rowlock import RowlockError

NAMES = (PART, *(group.name for group in GROUPS))


def chosen(only: Sequence[str]) -> list[Group]:
    """Return the named groups; all if none is named, or if the part is named."""
    return [group for group in GROUPS if not only or PART in only or group.name in only]


def measure(ground: Ground, groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """Measure every case, with one entry per repetition; a case that failed is not repeated."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for turn in range(ground.plan.repeat):
        for group in groups:
            failed = any("error" in entry for case in group.cases for entry in runs.get(case, ()))
            if (turn and (group.once or failed)) or (group.name == "import-huge" and not ground.plan.import_huge_rows):
                continue
            _measure_group(ground, group, runs)
    return runs


def _measure_group(ground: Ground, group: Group, runs: dict[str, list[dict[str, Any]]]) -> None:
    left = list(group.cases)
    try:
        for case, entry in group.run(ground):
            runs.setdefault(case, []).append(entry)
            left.remove(case)
            _say(case, entry)
    except (ClientError, RowlockError, OSError, psycopg.Error, subprocess.TimeoutExpired) as error:
        case = left[0] if left else group.cases[-1]
        entry = {"error": report.without_paths(f"{type(error).__name__}: {error}")}
        runs.setdefault(case, []).append(entry)
        _say(case, entry)


def _say(case: str, entry: dict[str, Any]) -> None:
    print(f"{time.strftime('%H:%M:%S')} {PART:16} {case:22} {report.line(entry)}", flush=True)
