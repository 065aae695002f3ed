"""Charts: pure functions from numbers to SVG. Colours come from the stylesheet, labels from the caller.

A chart has one step or point per minute and stretches to its container, so captions are HTML, not SVG. A page has many
charts, so paths are short: integers, relative coordinates, and one command per level stretch.
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
    """Return a chart of the jobs that ended in each minute, with the failed ones in front."""
    ended = [d + f for d, f in zip(done, failed, strict=True)]
    top = max(ended, default=0) or 1
    # A failure stays visible, however many succeeded.
    wrong = [max(_scaled(f, top), 2) if f else 0 for f in failed]
    right = [max(_scaled(e, top), w) for e, w in zip(ended, wrong, strict=True)]
    return _svg(len(done), [("done", _steps(right)), ("failed", _steps(wrong))], label)


def line(values: Sequence[float | None], label: str, *, filled: bool = True) -> Markup:
    """Return a line chart; None values are gaps."""
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
    """Combine each three minutes into one, for small charts; None if all three are None."""
    threes = ([value for value in values[at : at + 3] if value is not None] for at in range(0, len(values), 3))
    return [together(three) if three else None for three in threes]


def _svg(width: int, shapes: Sequence[tuple[str, str]], label: str) -> Markup:
    paths = Markup("").join(_PATH.format(kind=kind, shape=shape) for kind, shape in shapes if shape)
    return _SVG.format(width=max(1, width), height=_HEIGHT, label=label, shapes=paths)


def _steps(heights: Sequence[int]) -> str:
    """Return the path of the area below steps of these heights; empty if all are 0."""
    shape, before = f"M0 {_HEIGHT}", 0
    for height, run in groupby(heights):
        shape += (f"v{before - height}" if height != before else "") + f"h{len(list(run))}"
        before = height
    return f"{shape}V{_HEIGHT}z" if any(heights) else ""


def _slopes(heights: Sequence[int]) -> str:
    """Return the relative path from the first height through the others, one unit apart."""
    shape = "" if heights[1:] else "h.5"
    for moved, run in groupby((before - after for before, after in pairwise(heights)), key=bool):
        falls = list(run)
        shape += "l" + " ".join(f"1 {fall}".replace(" -", "-") for fall in falls) if moved else f"h{len(falls)}"
    return shape


def _scaled(value: float, top: float) -> int:
    """Return the height of a value: at least 1 if it is positive."""
    return 0 if value <= 0 else max(1, round(value / top * (_HEIGHT - 2)))
