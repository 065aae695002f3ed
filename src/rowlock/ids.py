"""Ids: UUIDv7 strings, in order of creation within a process."""

from __future__ import annotations

import os
import re
import threading
import time
from datetime import datetime

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_SEQUENCE = tuple(f"{number:03x}-" for number in range(4096))
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))
_LAST_MS = (1 << 48) - 1
_lock = threading.Lock()
_last = 0


def uuid7() -> str:
    """Return a new UUIDv7; later ids of this process sort after earlier ones."""
    return uuid7s(1)[0]


def uuid7s(count: int) -> list[str]:
    """Return `count` new UUIDv7s in increasing order, much faster than one by one."""
    global _last
    # 48 bits of milliseconds and 12 of sequence: a busy millisecond borrows from the next one.
    with _lock:
        first = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        _last = first + count - 1
    noise = bytearray(os.urandom(2 * count))
    noise[::2] = noise[::2].translate(_VARIANT)
    middles, tails = noise.hex("-", 2).split("-"), os.urandom(6 * count).hex("-", 6).split("-")
    ids: list[str] = []
    while (made := len(ids)) < count:
        stamp = first + made
        digits, at = f"{stamp >> 12:012x}", stamp & 0xFFF
        head = f"{digits[:8]}-{digits[8:]}-7"
        parts = zip(_SEQUENCE[at:], middles[made:], tails[made:], strict=False)
        ids += [f"{head}{sequence}{middle}-{tail}" for sequence, middle, tail in parts]
    return ids


def first_id(moment: datetime) -> str:
    """Return the lowest UUIDv7 of a moment's millisecond: only ids made before that millisecond sort before it."""
    digits = f"{max(0, min(int(moment.timestamp() * 1000), _LAST_MS)):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in its usual 36-character form."""
    return _UUID.fullmatch(text) is not None
