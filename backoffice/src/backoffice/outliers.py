"""Find outliers by their distance from the median, in units that a single outlier cannot stretch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

VALUES_MIN = 8  # fewer values do not show what is usual
SCORE_MIN = 3.5  # modified z-score, as recommended by Iglewicz and Hoaglin


def scores(values: Sequence[int]) -> list[float]:
    """Return the modified z-score of each value; all zero if there are fewer than VALUES_MIN or all are equal."""
    if len(values) < VALUES_MIN:
        return [0.0] * len(values)
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    # The median absolute deviation is 0 if more than half of the values are equal: then use the mean deviation.
    unit = median(distances) / 0.6745 or fmean(distances) * 1.2533
    return [(value - middle) / unit if unit else 0.0 for value in values]


def outliers(values: Sequence[int]) -> list[tuple[int, float]]:
    """Return (index, score) of each unusually large value, the highest score first."""
    found = [(place, score) for place, score in enumerate(scores(values)) if score > SCORE_MIN]
    return sorted(found, key=lambda item: -item[1])
