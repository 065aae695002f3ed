"""Remembers what failed look-aheads have read, so that later ones can skip it.

An unclosed quote is detected only by reading on, often for a hundred lines, but costs a single line; the next line may
have another one. From the first quoted cell that two look-aheads share, both read the same cells: the second one leaps
to where the first one gave up.
"""

from __future__ import annotations

from typing import NamedTuple


class Stage(NamedTuple):
    """A quoted cell of several lines that a look-ahead read. In a leap: the last such cell, and the distance to it."""

    opened: int  # position after its quote
    start: int  # position of the cell
    cells: int  # of the record before it
    lines: int  # of the record so far


class LookAheads:
    """The failed look-aheads in one block."""

    def __init__(self) -> None:
        self._data = b""
        self._leaps: dict[int, Stage] = {}

    def of(self, data: bytes) -> dict[int, Stage]:
        """Return the leaps in this block by the position after the quote of the cell where they start."""
        if data is not self._data:
            self._data, self._leaps = data, {}
        return self._leaps

    def failed(self, passed: list[Stage]) -> None:
        """Record the cells that a look-ahead passed: one that opens any of them leaps to the last."""
        last = passed[-1]
        for stage in passed[:-1]:
            self._leaps[stage.opened] = Stage(
                last.opened, last.start, last.cells - stage.cells, last.lines - stage.lines
            )
