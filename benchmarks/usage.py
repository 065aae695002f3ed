"""CPU time from /proc, in nanoseconds where the kernel tells them, for whole trees of processes."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU nanoseconds used so far by the clients, the server, the driver and everybody else."""

    client: int
    server: int
    driver: int
    others: int

    def __sub__(self, before: Usage) -> Usage:
        return Usage(
            self.client - before.client,
            self.server - before.server,
            self.driver - before.driver,
            self.others - before.others,
        )


def cpu(clients: list[int], server: int | None) -> Usage:
    """What the process trees under these pids, under the server and under this process have used."""
    parents = _parents()
    roots = {os.getpid(): "driver"} | dict.fromkeys(clients, "client")
    if server is not None:
        roots[server] = "server"
    used = {"client": 0, "server": 0, "driver": 0}
    for pid in parents:
        root = _root(pid, parents, roots)
        if root is not None:
            used[roots[root]] += _process_ns(pid)
    return Usage(used["client"], used["server"], used["driver"], _machine_ns() - sum(used.values()))


def tree(root: int) -> dict[int, str]:
    """This process and all that descend from it, each with the moment it was started."""
    parents = _parents()
    return {pid: started(pid) for pid in parents if _root(pid, parents, {root: ""}) == root}


def started(pid: int) -> str:
    """When the process with this id was started, in the kernel's words; empty when there is none."""
    try:
        return _stat(str(pid))[19]
    except OSError:
        return ""


def _root(pid: int, parents: dict[int, int], roots: dict[int, str]) -> int | None:
    for _ in range(20):
        if pid in roots:
            return pid
        pid = parents.get(pid, 0)
    return None


def _parents() -> dict[int, int]:
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                found[int(entry)] = int(_stat(entry)[1])
    return found


def _process_ns(pid: int) -> int:
    """Of the live threads, to the nanosecond; of children already reaped, to the clock tick."""
    total = 0
    with contextlib.suppress(OSError):
        total += sum(int(ticks) for ticks in _stat(str(pid))[13:15]) * _TICK_NS
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total


def _stat(pid: str) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may itself hold blanks and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _machine_ns() -> int:
    with open("/proc/stat") as lines:
        fields = [int(field) for field in lines.readline().split()[1:9]]
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) * _TICK_NS
