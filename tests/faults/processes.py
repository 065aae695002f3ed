"""Process trees under attack: started as users start them, watched, stopped, killed, and cleaned up after the test."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from faults import journal
from faults.databases import Database
from faults.journal import Journal
from faults.until import until

TESTS = Path(__file__).parents[1]
START_SECONDS = 60.0
_numbers = count(1)
_PR_SET_PDEATHSIG = 1

QUICK: Mapping[str, str] = {
    "QUEUE_VISIBILITY_MS": "1000",
    "QUEUE_HEARTBEAT_MS": "250",
    "ROWLOCK_RESCUE_MS": "200",
    "QUEUE_POLL_MS": "200",
    "ROWLOCK_GRACE_SECONDS": "2",
    "ROWLOCK_BACKOFF_BASE_SECONDS": "0",
    "ROWLOCK_LOG_FORMAT": "json",
}
"""Settings with leases of 1 s, so that a lease is lost quickly."""

LONG_LEASE: Mapping[str, str] = {**QUICK, "QUEUE_VISIBILITY_MS": "60000"}
"""The same where no lease is to be lost: one of 1 s would be, if a supervisor on a busy machine stood still."""


def _die_with_the_test() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Tree:
    """A process and its descendants, in their own process group."""

    def __init__(self, arguments: Iterable[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**_plain_environment(), **environment},
                cwd=log.parent,
                start_new_session=True,
                preexec_fn=_die_with_the_test,
            )
        self.pid = self._process.pid
        self.killed: dict[int, float] = {}  # pid of each worker process killed by the test -> time
        self._events: list[dict[str, Any]] = []
        self._read_bytes = 0

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def workers(self) -> list[int]:
        """Return the pids of its worker processes, without the spare one in reserve."""
        started = {event["pid"] for event in self.events("worker.started")}
        try:
            children = psutil.Process(self.pid).children()
            return [child.pid for child in children if child.pid in started and child.status() != "zombie"]
        except psutil.NoSuchProcess:
            return []

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return its logged events, or only those with this name."""
        with self.log.open("rb") as file:
            file.seek(self._read_bytes)
            for line in file:
                if line.endswith(b"\n"):  # the last line may be incomplete
                    self._read_bytes += len(line)
                    if line.startswith(b"{"):
                        self._events.append(json.loads(line))
        return [event for event in self._events if name is None or event.get("event") == name]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def resume_workers(self) -> None:
        """Resume its worker processes; their supervisor stays paused."""
        for pid in self.workers():
            os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the whole tree at once, as when a machine dies."""
        self.killed |= dict.fromkeys(self.workers(), time.monotonic())
        self.signal(signal.SIGKILL)
        self._process.wait(10)

    def kill_worker(self, pid: int) -> float:
        """Kill one worker process. Returns the time."""
        moment = self.killed[pid] = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return moment

    def stop(self, seconds: float = 10.0) -> float:
        """Ask its first process to stop, as an operator does. Returns the seconds until all processes had ended."""
        asked = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not stop within {seconds:g} s:\n{self.tail()}") from None
        took = time.monotonic() - asked
        until(lambda: not self._members(), 30, "worker processes outlive their supervisor")
        return took

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def tail(self, lines: int = 30) -> str:
        return "\n".join(line[:400] for line in self.log.read_text(errors="replace").splitlines()[-lines:])

    def _members(self) -> list[int]:
        found = []
        for process in psutil.process_iter(["pid"]):
            try:
                if os.getpgid(process.pid) == self.pid and process.status() != "zombie":
                    found.append(process.pid)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def clear_away(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self._process.wait(10)


class Fleet:
    """All process trees of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal")
        self.trees: list[Tree] = []

    def environment(self, **changes: str) -> dict[str, str]:
        return {**QUICK, journal.VARIABLE: str(self.journal.path), **changes}

    def start(self, *arguments: str, **environment: str) -> Tree:
        """Run a module with arguments."""
        name = arguments[0].rpartition(".")[2]
        tree = Tree(arguments, self.environment(**environment), self.folder / f"{name}{next(_numbers)}.log")
        self.trees.append(tree)
        return tree

    def worker(
        self,
        database: Database | str,
        *options: str,
        processes: int = 1,
        concurrency: int = 4,
        ready: bool = True,
        app: str = "faults.app:app",
        **environment: str,
    ) -> Tree:
        """Start `rowlock worker`. Waits until its worker processes are ready, unless `ready` is False."""
        url = database if isinstance(database, str) else database.url
        tree = self.start(
            *("rowlock", "worker", "--app", app, "--database", url),
            *("--processes", str(processes), "--concurrency", str(concurrency), *options),
            **environment,
        )
        if ready:
            self.await_workers(tree, database, processes)
        return tree

    def await_workers(self, tree: Tree, database: Database | str, processes: int = 1) -> None:
        """Wait until each of the tree's worker processes has opened the database."""

        def working() -> bool:
            assert tree.alive, f"the worker ended with {tree.code}:\n{tree.tail()}"
            pids = tree.workers()
            return len(pids) >= processes and (isinstance(database, str) or all(map(database.opened_by, pids)))

        until(working, START_SECONDS, tree.tail)

    def clear_away(self) -> None:
        for tree in self.trees:
            tree.clear_away()


def _plain_environment() -> dict[str, str]:
    """Return this process's environment without Rowlock settings of the machine, with the tests' modules importable."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ROWLOCK_", "QUEUE_", "WORKER_", "IMPORT_", "JOB_", "DATABASE_", "FAULTS_", "PYTEST_"))
    }
    path = ":".join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return {**ours, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
