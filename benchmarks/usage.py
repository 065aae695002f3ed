"""CPU time of process trees from /proc, in nanoseconds. It must be fast, because it runs during measurements."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_READ_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU nanoseconds used so far by the clients, the server, and all other processes except this driver."""

    client: int
    server: int
    others: int

    def __sub__(self, before: Usage) -> Usage:
        return Usage(self.client - before.client, self.server - before.server, self.others - before.others)


def cpu(clients: list[int], server: int | None) -> Usage:
    """Return the CPU time of the process trees of these pids and of the server."""
    client = sum(_process_ns(pid) for root in clients for pid in _descent(root))
    stored = 0 if server is None else sum(_process_ns(pid) for pid in _descent(server))
    return Usage(client, stored, _machine_ns() - client - stored - _process_ns(os.getpid()))


def require() -> None:
    """Raise OSError if the kernel lacks the required files in /proc."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise OSError("this kernel has no /proc/PID/task/TID/children, without which CPU time cannot be attributed")


def tree(root: int) -> dict[int, str]:
    """Return a process and its descendants, with the start time of each."""
    return {pid: started(pid) for pid in _descent(root)}


def started(pid: int) -> str:
    """Return the start time of the process in the kernel's format; an empty string if there is none."""
    try:
        return _stat(pid)[19]
    except OSError:
        return ""


def _descent(root: int) -> list[int]:
    found = [root]
    for pid in found:  # grows during the loop
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _process_ns(pid: int) -> int:
    """Return the CPU time of the live threads, to the nanosecond, and of reaped children, to the clock tick."""
    total = 0
    with contextlib.suppress(OSError):
        total += sum(int(ticks) for ticks in _stat(pid)[13:15]) * _TICK_NS
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                total += int(_read(f"/proc/{pid}/task/{task}/schedstat").split()[0])
    return total


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain blanks and brackets."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _machine_ns() -> int:
    fields = [int(field) for field in _read("/proc/stat").split("\n", 1)[0].split()[1:9]]
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) * _TICK_NS


def _read(path: str) -> str:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _READ_BYTES_MAX).decode(errors="replace")
    finally:
        os.close(file)
