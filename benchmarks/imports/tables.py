"""The import section of the results page, in Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.bars import Summary
from benchmarks.imports.bars import PART
from benchmarks.imports.model import OTHERS
from benchmarks.markdown import number, share, table

_LARGE, _SMALL = "import_rows", "import_small_rows"
_ROWS: tuple[tuple[str, str, str, str], ...] = (
    ("copy", "raw COPY into the empty table with its unique index; nothing checked", _LARGE, "copy"),
    ("staging", "COPY to staging, upsert, counts; nothing checked", _LARGE, "copy"),
    ("seed-000", "pydantic row by row, upserts of 100", _LARGE, "copy"),
    ("pandas", "pandas to_sql to staging, upsert; nothing checked", _SMALL, "copy"),
    ("dlt", "dlt merge of dicts, pydantic contract; bad rows dropped without a word", _SMALL, "copy"),
    ("rowlock-empty", "**Rowlock**, one process, empty table", _LARGE, "copy"),
    ("rowlock-empty-2", "**Rowlock**, two processes, empty table", _LARGE, "copy"),
    ("rowlock-replace", "**Rowlock**, one process, replace", _LARGE, "copy"),
    ("rowlock-replace-2", "**Rowlock**, two processes, replace", _LARGE, "copy"),
    ("rowlock-first", "**Rowlock**, one process, upsert", _LARGE, "copy"),
    ("rowlock-first-2", "**Rowlock**, two processes, upsert", _LARGE, "copy"),
    ("rowlock-again", "**Rowlock**, one process, the same rows again", _LARGE, "copy"),
    ("rowlock-again-2", "**Rowlock**, two processes, the same rows again", _LARGE, "copy"),
    ("rowlock-huge", "**Rowlock**, one process, upsert", "import_huge_rows", "copy"),
    ("openpyxl", "XLSX: openpyxl, pydantic row by row, upserts of 100", _SMALL, "openpyxl"),
    ("rowlock-xlsx", "XLSX: **Rowlock**, one process, upsert", _SMALL, "openpyxl"),
    ("sqlite-utils", "SQLite: pydantic row by row, sqlite-utils upsert_all", _LARGE, "sqlite-utils"),
    ("rowlock-sqlite", "SQLite: **Rowlock**, one process, upsert", _LARGE, "sqlite-utils"),
)
_PEAKS = ("supervisor", "worker", "planner")


def section(summary: Summary, about: dict[str, Any]) -> str:
    found = summary.get(PART, {})
    parts = ["## Imports: rows a second, and what a row costs\n", _rates(found, about)]
    parts += ["## Imports: peak memory of the processes, MB\n", _memory(found, about)]
    parts += ["## Imports: a file of 100 rows, end of upload to SUCCEEDED, milliseconds\n", _latency(found)]
    return "\n".join([*parts, _method(about)])


def _rates(found: dict[str, dict[str, Any]], about: dict[str, Any]) -> str:
    rows = []
    for case, title, size, base in _ROWS:
        figures = found.get(case)
        if figures is None:
            continue
        rate, ground = figures.get("rate"), found.get(base, {}).get("rate")
        rows.append(
            [
                title,
                number(about["plan"][size]),
                "failed" if "error" in figures else number(rate),
                share(rate, ground),
                number(figures.get("client_cpu_us")),
                number(figures.get("server_cpu_us")),
                number(figures.get("peak_mb")),
                number(figures.get("other_cores")),
            ]
        )
    titles = ["rows", "rows/s", "÷ first of its kind", "client CPU µs", "server CPU µs", "peak MB", "others' cores"]
    return table(["way", *titles], rows)


def _memory(found: dict[str, dict[str, Any]], about: dict[str, Any]) -> str:
    rows = []
    for case, title, size, _ in _ROWS:
        peaks = [found.get(case, {}).get(f"peak_{role}_mb") for role in _PEAKS]
        if any(peaks):
            rows.append([title, number(about["plan"][size]), *map(number, peaks)])
    return table(["import", "rows", *_PEAKS], rows)


def _latency(found: dict[str, dict[str, Any]]) -> str:
    told = found.get("rowlock-latency", {})
    keys = ("p50_ms", "max_ms", "in_a_row_p50_ms", "in_a_row_max_ms")
    titles = ["idle worker, median", "worst", "one right after the other, median", "worst"]
    return table(titles, [[number(told.get(key)) for key in keys]])


def _method(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about.get("import_versions", {}).items())
    lines = [
        f"- {about['plan'][_LARGE]:,} rows of ten columns, 138 bytes a row, keys in random order, 0.5 % of them bad.",
        "- Rowlock: default settings, from the upload on disk and recorded until SUCCEEDED. Ways that check nothing",
        "  get the file without its bad rows. Every run is held against the truth: the bad cells by row and column,",
        "  the counts, and a sum over the content of the table.",
        f"- Staging and upsert, and Rowlock's upserts and replacements, find {OTHERS:,} rows of other keys there.",
        "- Before each import ANALYZE and CHECKPOINT, before the same rows again VACUUM ANALYZE. Workers are warm:",
        "  each had a file before, and 4.5 s of rest.",
        "- Memory: VmHWM of every process of the worker's tree, looked at 20 times a second.",
        f"- {versions}.",
        "",
    ]
    return "\n".join(lines)
