"""Outliers by plain statistics: how far an amount is from the median, in units that one outlier cannot stretch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

VALUES_MIN = 8  # fewer say nothing about what is usual
SCORE_MIN = 3.5  # of the modified z-score, as Iglewicz and Hoaglin recommend


def scores(values: Sequence[int]) -> list[float]:
    """The modified z-score of each value; all zero where there are too few, or all are alike."""
    if len(values) < VALUES_MIN:
        return [0.0] * len(values)
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    # The median absolute deviation; where more than half are alike it is 0, and the mean one takes its place.
    unit = median(distances) / 0.6745 or fmean(distances) * 1.2533
    return [(value - middle) / unit if unit else 0.0 for value in values]


def outliers(values: Sequence[int]) -> list[tuple[int, float]]:
    """Where the unusually large values are, and how unusual each is, the most unusual first."""
    found = [(place, score) for place, score in enumerate(scores(values)) if score > SCORE_MIN]
    return sorted(found, key=lambda item: -item[1])
