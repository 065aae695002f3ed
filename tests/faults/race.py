"""Racers: processes forked after the imports, so that eight start as fast as one."""

from __future__ import annotations

import os
import sys


def fork(number: int) -> int:
    """Return in each of `number` forked processes, with its index. The parent waits for all; fails if one failed."""
    pids = []
    for place in range(number):
        pid = os.fork()
        if pid == 0:
            return place
        pids.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    sys.exit(next((abs(code) for code in codes if code), 0))
