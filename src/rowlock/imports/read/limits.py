"""Limits on what a reader accepts, independent of what the file declares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits for every reader; a file that exceeds one is refused, a record that exceeds one is a bad record."""

    columns_max: int = 1_000
    cell_chars_max: int = 1_048_576
    unpacked_bytes_max: int = 8 << 30
    block_bytes: int = 8 << 20
    told_max: int = 10_000  # bad records that are reported one by one; further ones are only counted
