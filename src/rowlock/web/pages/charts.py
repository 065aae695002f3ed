"""Charts: SVG from numbers. Pure functions; colours come from the stylesheet, words from whoever calls.

A step or a point per minute, in a box that stretches to its place: what is written beside it is HTML, not SVG.
A page has many, so they are short: whole numbers, each from where the one before ended, and a level stretch is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Any

from markupsafe import Markup

_HEIGHT = 40
_SVG = Markup(
    '<svg class="chart" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{label}">'
    "{shapes}</svg>"
)
_PATH = Markup('<path class="{kind}" d="{shape}"/>')


def bars(done: Sequence[int], failed: Sequence[int], label: str) -> Markup:
    """How much ended in each minute, and in front of it how much of that had failed."""
    ended = [d + f for d, f in zip(done, failed, strict=True)]
    top = max(ended, default=0) or 1
    # A failure is seen, however many were done.
    wrong = [max(_scaled(f, top), 2) if f else 0 for f in failed]
    right = [max(_scaled(e, top), w) for e, w in zip(ended, wrong, strict=True)]
    return _svg(len(done), [("done", _steps(right)), ("failed", _steps(wrong))], label)


def line(values: Sequence[float | None], label: str, *, filled: bool = True) -> Markup:
    """How something went up and down; where nobody looked there is a gap."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    area, stroke, at = "", "", 0
    for known, run in groupby(values, key=lambda value: value is not None):
        heights = [_scaled(value or 0, top) for value in run]
        if known:
            path = _slopes(heights)
            stroke += f"M{at} {_HEIGHT - heights[0]}{path}"
            area += f"M{at} {_HEIGHT}v{-heights[0]}{path}V{_HEIGHT}z"
        at += len(heights)
    return _svg(len(values) - 1, [("area", area if filled else ""), ("line", stroke)], label)


def coarser(values: Sequence[Any], together: Callable[[list[Any]], Any]) -> list[Any]:
    """Three minutes as one, for a chart so small that no eye tells them apart; None where none of them is known."""
    threes = ([value for value in values[at : at + 3] if value is not None] for at in range(0, len(values), 3))
    return [together(three) if three else None for three in threes]


def _svg(width: int, shapes: Sequence[tuple[str, str]], label: str) -> Markup:
    paths = Markup("").join(_PATH.format(kind=kind, shape=shape) for kind, shape in shapes if shape)
    return _SVG.format(width=max(1, width), height=_HEIGHT, label=label, shapes=paths)


def _steps(heights: Sequence[int]) -> str:
    """Up or down to each of these heights, and a step aside there: what lies below."""
    shape, before = f"M0 {_HEIGHT}", 0
    for height, run in groupby(heights):
        shape += (f"v{before - height}" if height != before else "") + f"h{len(list(run))}"
        before = height
    return f"{shape}V{_HEIGHT}z" if any(heights) else ""


def _slopes(heights: Sequence[int]) -> str:
    """From the first of these heights to each of the others, a step aside every time."""
    shape = "" if heights[1:] else "h.5"
    for moved, run in groupby((before - after for before, after in pairwise(heights)), key=bool):
        falls = list(run)
        shape += "l" + " ".join(f"1 {fall}".replace(" -", "-") for fall in falls) if moved else f"h{len(falls)}"
    return shape


def _scaled(value: float, top: float) -> int:
    """Its height; what is more than nothing is seen."""
    return 0 if value <= 0 else max(1, round(value / top * (_HEIGHT - 2)))
