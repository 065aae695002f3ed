"""Cells and tables of the results page."""

from __future__ import annotations

from typing import Any


def number(value: Any) -> str:
    """Format a figure for people: three digits, or a whole number with separators."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def share(part: float | None, whole: float | None) -> str:
    """Return one figure divided by another."""
    return f"{part / whole:.2f}" if part is not None and whole else "–"


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"
