"""How much of a file a reader takes in, whatever the file says about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The bounds that hold for every reader; a file past one of them is refused, a record past one is a bad record."""

    columns_max: int = 1_000
    cell_chars_max: int = 1_048_576
    unpacked_bytes_max: int = 8 << 30
    block_bytes: int = 8 << 20
    told_max: int = 10_000  # bad records that are told one by one; the others are only counted
