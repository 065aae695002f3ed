"""Ids: UUIDv7 strings, in order of creation within a process."""

from __future__ import annotations

import os
import re
import threading
import time

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_lock = threading.Lock()
_last = 0


def uuid7() -> str:
    """A new UUIDv7; later calls in this process sort after earlier ones."""
    return uuid7s(1)[0]


def uuid7s(count: int) -> list[str]:
    """`count` new UUIDv7s in increasing order, for a fraction of the price of one by one."""
    global _last
    # 48 bits of milliseconds and 12 of sequence: what a busy millisecond cannot hold, it borrows from the next.
    with _lock:
        first = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        _last = first + count - 1
    noise = os.urandom(8 * count).hex()
    ids, millisecond, head = [], -1, ""
    for index in range(count):
        stamp = first + index
        if stamp >> 12 != millisecond:
            millisecond = stamp >> 12
            digits = f"{millisecond:012x}"
            head = f"{digits[:8]}-{digits[8:]}-7"
        at = 16 * index
        tail = f"{_VARIANT[noise[at]]}{noise[at + 1 : at + 4]}-{noise[at + 4 : at + 16]}"
        ids.append(f"{head}{stamp & 0xFFF:03x}-{tail}")
    return ids


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in its usual 36-character form."""
    return _UUID.fullmatch(text) is not None
