"""Rowlock's workers as real processes, with the peak memory of each process of their tree."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.clients import ClientError, stop
from benchmarks.usage import tree

APP = "benchmarks.imports.app:app"
_LOOK_SECONDS = 0.05
_LOOKS_PER_SEARCH = 5  # finding new processes costs more than reading known ones
_REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(slots=True)
class WorkerTree:
    process: subprocess.Popen[bytes]
    log: Path
    peaks: dict[int, float] = field(default_factory=dict)  # megabytes, by process
    roles: dict[int, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        """Raise ClientError if the workers have exited."""
        if self.process.poll() is not None:
            raise ClientError(f"worker ended: {self.log.read_text(errors='replace').strip()[-1500:]}")

    def look(self, search: bool = True) -> None:
        """Record the peak memory of each process so far."""
        for pid in tree(self.pid) if search else list(self.peaks):
            with contextlib.suppress(OSError, TypeError):
                status = Path(f"/proc/{pid}/status").read_text()
                found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
                self.peaks[pid] = max(self.peaks.get(pid, 0.0), int(found[1]) / 1024)  # type: ignore[index]
                if pid not in self.roles:
                    self.roles[pid] = "supervisor" if pid == self.pid else _role(pid)

    def forget(self) -> None:
        """Reset the peaks."""
        for pid in tree(self.pid):
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
        self.peaks.clear()
        self.look()

    def peak_by_role(self) -> dict[str, float]:
        """Return the peak memory of any process of each role, in megabytes."""
        self.look()
        found: dict[str, float] = {}
        for pid, peak in self.peaks.items():
            role = f"peak_{self.roles.get(pid, 'other')}_mb"
            found[role] = max(found.get(role, 0.0), peak)
        return found | {"peak_mb": max(self.peaks.values(), default=0.0)}


@contextlib.contextmanager
def workers(
    app: str, environment: dict[str, str], directory: Path, processes: int, queues: Sequence[str] = ("imports",)
) -> Iterator[WorkerTree]:
    """Start workers of the application as its users do; stop them and their subprocesses at the end."""
    command = [sys.executable, "-m", "rowlock", "worker", "--app", app]
    command += [word for queue in queues for word in ("--queue", queue)]
    command += ["--processes", str(processes), "--json"]
    log = directory / "worker.log"
    environment = os.environ | environment | {"PYTHONPATH": str(_REPOSITORY)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=directory, stdout=output, stderr=output, start_new_session=True
        )
    running = WorkerTree(process, log)
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(running, over), daemon=True)
    watching.start()
    try:
        yield running
    finally:
        over.set()
        watching.join()
        stop(process)


def _watch(running: WorkerTree, over: threading.Event) -> None:
    looks = 0
    while not over.wait(_LOOK_SECONDS):
        running.look(search=looks % _LOOKS_PER_SEARCH == 0)
        looks += 1


def _role(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return "planner" if b"rowlock.imports.read.planner" in command else "worker"
