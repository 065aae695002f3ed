"""What failed look-aheads have seen, so that the next ones need not see it again.

A quote that is never closed is found out only by reading on, often as far as a hundred lines, and costs a single line;
the next line may have another such quote. From the first cell on that both look-aheads open, both see the same cells:
the second one leaps to where the first one gave up.
"""

from __future__ import annotations

from typing import NamedTuple


class Stage(NamedTuple):
    """A quoted cell of several lines on the way of a look-ahead; as a leap, how far it is to the last one."""

    opened: int  # behind its quote
    start: int  # of the cell
    cells: int  # before it
    lines: int  # before it


class LookAheads:
    """The failed look-aheads in one block."""

    def __init__(self) -> None:
        self._data = b""
        self._leaps: dict[int, Stage] = {}

    def of(self, data: bytes) -> dict[int, Stage]:
        """The leaps that can be taken in this block, by the cell where they start."""
        if data is not self._data:
            self._data, self._leaps = data, {}
        return self._leaps

    def failed(self, passed: list[Stage]) -> None:
        """Remember the way, so that whoever gets onto it leaps to its end."""
        last = passed[-1]
        for stage in passed[:-1]:
            self._leaps[stage.opened] = Stage(
                last.opened, last.start, last.cells - stage.cells, last.lines - stage.lines
            )
