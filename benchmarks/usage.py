"""CPU time from /proc, in nanoseconds, for whole trees of processes; quick, for it runs while others are measured."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_READ_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU nanoseconds used so far by the clients, the server, and everybody else but this driver."""

    client: int
    server: int
    others: int

    def __sub__(self, before: Usage) -> Usage:
        return Usage(self.client - before.client, self.server - before.server, self.others - before.others)


def cpu(clients: list[int], server: int | None) -> Usage:
    """What the process trees under these pids and under the server have used."""
    client = sum(_process_ns(pid) for root in clients for pid in _descent(root))
    stored = 0 if server is None else sum(_process_ns(pid) for pid in _descent(server))
    return Usage(client, stored, _machine_ns() - client - stored - _process_ns(os.getpid()))


def require() -> None:
    """Raise when this kernel does not tell what is needed here."""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise OSError("this kernel has no /proc/PID/task/TID/children, without which CPU time cannot be told apart")


def tree(root: int) -> dict[int, str]:
    """This process and all that descend from it, each with the moment it was started."""
    return {pid: started(pid) for pid in _descent(root)}


def started(pid: int) -> str:
    """When the process with this id was started, in the kernel's words; empty when there is none."""
    try:
        return _stat(pid)[19]
    except OSError:
        return ""


def _descent(root: int) -> list[int]:
    found = [root]
    for pid in found:  # grows while it is read
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _process_ns(pid: int) -> int:
    """Of the live threads, to the nanosecond; of children already reaped, to the clock tick."""
    total = 0
    with contextlib.suppress(OSError):
        total += sum(int(ticks) for ticks in _stat(pid)[13:15]) * _TICK_NS
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                total += int(_read(f"/proc/{pid}/task/{task}/schedstat").split()[0])
    return total


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may itself hold blanks and brackets."""
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
