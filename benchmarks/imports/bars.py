"""The bars of imports."""

from __future__ import annotations

from benchmarks.bars import Bar, Summary, figure, ratio

PART = "imports"
_CASES_OF_MEMORY = tuple(
    f"rowlock-{case}{end}" for case in ("empty", "first", "again", "replace") for end in ("", "-2")
)


def _against(case: str, peer: str, limit: float, name: str) -> Bar:
    return Bar(name, limit, True, "x", ratio(figure(PART, case), figure(PART, peer)))


def _peak(summary: Summary) -> float | None:
    found = [summary.get(PART, {}).get(case, {}).get("peak_mb") for case in _CASES_OF_MEMORY]
    return max((peak for peak in found if peak is not None), default=None)


_huge = figure(PART, "rowlock-huge", "peak_mb")

IMPORT_BARS: tuple[Bar, ...] = (
    _against("rowlock-first", "staging", 0.75, "import, one process ÷ staging and upsert with counts, nothing checked"),
    _against("rowlock-first-2", "staging", 1.05, "the same with two processes"),
    _against("rowlock-empty", "copy", 0.9, "import into an empty table, one process ÷ raw COPY"),
    _against("rowlock-replace", "copy", 0.9, "import in replace mode, one process ÷ raw COPY"),
    _against("rowlock-again", "rowlock-first", 1.2, "import of the same rows again, one process ÷ the first time"),
    _against("rowlock-first", "seed-000", 3.5, "import, one process ÷ row by row, upserts of 100"),
    _against("rowlock-first-2", "seed-000", 5, "the same with two processes"),
    _against("rowlock-first", "dlt", 10, "import, one process ÷ dlt merge"),
    _against("rowlock-xlsx", "openpyxl", 5, "import of a workbook ÷ openpyxl row by row, upserts of 100"),
    _against("rowlock-sqlite", "sqlite-utils", 3, "import into SQLite ÷ sqlite-utils with the same checks"),
    Bar("peak memory of any process of an import", 512, False, " MB", _peak),
    Bar("the same with ten times the rows", 512, False, " MB", _huge),
    Bar("peak memory with ten times the rows ÷ with these", 1.1, False, "x", ratio(_huge, _peak)),
    Bar(
        "100-row file, end of upload to SUCCEEDED, median", 500, False, " ms", figure(PART, "rowlock-latency", "p50_ms")
    ),
    Bar("the same, worst", 500, False, " ms", figure(PART, "rowlock-latency", "max_ms")),
)
