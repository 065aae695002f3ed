"""Write the results of a run: medians, tables and files, without paths of this machine."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import bars, tables
from benchmarks.bars import Summary
from benchmarks.imports import bars as imports
from benchmarks.install import HERE, cache_directory
from benchmarks.sync import bars as sync
from benchmarks.systems import System

RESULTS = HERE / "results"
PARTS = {imports.PART: imports.IMPORT_BARS, sync.PART: sync.SYNC_BARS}
Runs = dict[str, dict[str, list[dict[str, Any]]]]


def write(runs: Runs, systems: list[System], about: dict[str, Any], partial: bool) -> Path:
    """Write the JSON and the table; return the table's path. A partial run does not change the repository."""
    summary = summarize(runs, systems)
    judged = [*(bars.BARS if systems else ()), *(each for part, its in PARTS.items() if part in runs for each in its)]
    verdicts = bars.judge(summary, judged)
    directory = cache_directory() / "results" if partial else RESULTS
    directory.mkdir(parents=True, exist_ok=True)
    quick = "" if about["plan"]["repeat"] > 1 else "-quick"
    data = {"about": about, "bars": verdicts, "summary": summary, "runs": runs}
    text = json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n"
    (directory / f"{about['date']}-{about['commit']}{quick}.json").write_text(without_paths(text))
    path = directory / f"latest{quick}.md"
    path.write_text(without_paths(tables.page(summary, verdicts, systems, about)))
    return path


def summarize(runs: Runs, systems: list[System]) -> Summary:
    """Return the median of every number; workloads with the same settings share their figures."""
    summary: Summary = {}
    for system in systems:
        found = {workload: _median(entries) for workload, entries in runs[system.name].items()}
        same: dict[str, str] = {}
        if dict(system.default) == dict(system.best):
            same |= {"drain-other": "drain", "drain-other-2": "drain-2"}
        if system.batch is not None and dict(system.batch) == dict(system.best):
            same["batch"] = "drain"
        found |= {name: found[taken] for name, taken in same.items() if taken in found}
        summary[system.name] = found
    for part in PARTS:
        if part in runs:
            summary[part] = {case: _median(entries) for case, entries in runs[part].items()}
    return summary


def _median(entries: list[dict[str, Any]]) -> dict[str, Any]:
    good = [entry for entry in entries if "error" not in entry]
    if not good:
        return {"error": entries[0]["error"]}
    keys = {key for entry in good for key, value in entry.items() if isinstance(value, (int, float))}
    medians: dict[str, Any] = {}
    for key in sorted(keys):
        values = [entry[key] for entry in good if entry.get(key) is not None]
        if isinstance(values[0], bool):
            medians[key] = any(values)
        else:
            worst = key in ("duplicates", "overruns", "most") or key.startswith("peak_")
            medians[key] = max(values) if worst else statistics.median(values)
    if "filled" in good[0]:
        medians["filled"] = good[0]["filled"]
    return medians


def line(entry: dict[str, Any]) -> str:
    """Return a short text of one entry, for the terminal."""
    if "error" in entry:
        return f"FAILED {entry['error'].splitlines()[-1][-300:]}"
    words = []
    for key, value in entry.items():
        if isinstance(value, bool):
            words += [key] if value else []
        elif isinstance(value, (int, float)) and (value or key == "rate"):
            words.append(f"{key}={value:,.0f}" if abs(value) >= 100 else f"{key}={value:.3g}")
    return " ".join(words)


def without_paths(text: str) -> str:
    """Return the text with this machine's directories replaced by names."""
    known = {
        str(HERE.parent): "REPOSITORY",
        str(cache_directory()): "CACHE",
        str(Path.home()): "HOME",
        tempfile.gettempdir() + "/": "TMP/",
        "/var/tmp/": "TMP/",
    }
    for path, word in known.items():
        text = text.replace(path, word)
    return text
