"""Charts: SVG from numbers. Pure functions; colours come from the stylesheet, words from whoever calls.

A bar or a point per minute, in a box that stretches to its place: what is written beside it is HTML, not SVG.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_HEIGHT = 40
_STEP = 4  # of which 3 are the bar
_SVG = Markup(
    '<svg class="chart" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{label}">'
    "{shapes}</svg>"
)
_PATH = Markup('<path class="{kind}" d="{shape}"/>')


def bars(done: Sequence[int], failed: Sequence[int], label: str) -> Markup:
    """What was done in each minute, and on top of it what failed."""
    top = max((d + f for d, f in zip(done, failed, strict=True)), default=0) or 1
    below, above = [], []
    for at, (d, f) in enumerate(zip(done, failed, strict=True)):
        low, high = _scaled(d, top), _scaled(d + f, top)
        if f and high - low < 1:  # a failure is seen, however many were done
            low, high = max(0.0, high - 2), max(high, 2.0)
        if low:
            below.append(_bar(at, 0, low))
        if high > low and f:
            above.append(_bar(at, low, high))
    shapes = [("done", "".join(below)), ("failed", "".join(above))]
    return _svg(len(done), shapes, label)


def line(values: Sequence[float | None], label: str) -> Markup:
    """How something went up and down; where nobody looked there is a gap."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    area, stroke, run = [], [], list[tuple[float, float]]()
    for at, value in enumerate([*values, None]):
        if value is not None:
            run.append((at * _STEP + _STEP / 2, _HEIGHT - _scaled(value, top)))
            continue
        if run:
            if len(run) == 1:
                run.append((run[0][0] + _STEP / 2, run[0][1]))
            path = "L".join(f"{x:g} {y:g}" for x, y in run)
            stroke.append(f"M{path}")
            area.append(f"M{run[0][0]:g} {_HEIGHT}L{path}V{_HEIGHT}Z")
        run = []
    return _svg(len(values), [("area", "".join(area)), ("line", "".join(stroke))], label)


def _svg(count: int, shapes: Sequence[tuple[str, str]], label: str) -> Markup:
    paths = Markup("").join(_PATH.format(kind=kind, shape=shape) for kind, shape in shapes if shape)
    return _SVG.format(width=max(1, count) * _STEP, height=_HEIGHT, label=label, shapes=paths)


def _bar(at: int, low: float, high: float) -> str:
    return f"M{at * _STEP} {_HEIGHT - low:g}v{low - high:g}h3v{high - low:g}z"


def _scaled(value: float, top: float) -> float:
    """Its height, by tenths; what is more than nothing is seen."""
    return 0.0 if value <= 0 else max(1.0, round(value / top * (_HEIGHT - 2), 1))
