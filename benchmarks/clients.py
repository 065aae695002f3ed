"""The processes of a measured system: short client commands, and workers with the file in which they record starts."""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.install import program
from benchmarks.places import Place
from benchmarks.systems import Settings, System
from benchmarks.usage import started, tree

FILLER = 10_000_000
RECORD_WORDS = 3
COMMAND_SECONDS_MAX = 900
STOP_SECONDS_MAX = 5
_FAREWELL_SECONDS = 0.1  # until the server notices that its clients have disconnected, and counts their work
_REPOSITORY = Path(__file__).resolve().parent.parent


class ClientError(Exception):
    """A process of a system failed; the message ends with its output."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The directories of a run: installed peers, data on disk, the record on tmpfs."""

    cache: Path
    data: Path
    memory: Path

    @property
    def record(self) -> Path:
        return self.memory / "record"

    @property
    def worker_log(self) -> Path:
        return self.data / "worker.log"

    def environment(self, system: System, place: Place, settings: Settings) -> dict[str, str]:
        return os.environ | {
            "BENCH_DATABASE": place.url,
            "BENCH_SETTINGS": json.dumps(dict(settings)),
            "BENCH_RECORD": str(self.record),
            "NODE_ENV": "production",
            "NODE_PATH": str(self.cache / "node" / "node_modules"),
            "PYTHONPATH": str(_REPOSITORY),
        }


def call(bench: Bench, system: System, place: Place, settings: Settings, command: str, *numbers: int) -> dict[str, Any]:
    """Run one client command and return its result."""
    argv = [*program(system, bench.cache), command, *map(str, numbers)]
    environment = bench.environment(system, place, settings)
    done = subprocess.run(
        argv, env=environment, cwd=bench.data, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not answers:
        raise ClientError(f"{system.name} {command}: {done.stderr.strip()[-1500:]}")
    return dict(json.loads(answers[-1]))


@dataclass(slots=True)
class Record:
    """The starts that the handlers recorded: job number, monotonic ns, process; three integers each."""

    path: Path
    words: array.array[int] = field(default_factory=lambda: array.array("q"))
    measured: int = 0

    def read(self) -> int:
        """Read new records; return how many measured jobs have started so far."""
        offset = len(self.words) * self.words.itemsize
        with self.path.open("rb") as file:
            file.seek(offset)
            new = file.read()
        whole = len(new) // (RECORD_WORDS * self.words.itemsize) * RECORD_WORDS * self.words.itemsize
        fresh = array.array("q")
        fresh.frombytes(new[:whole])
        self.words.extend(fresh)
        self.measured += sum(1 for number in fresh[::RECORD_WORDS] if 0 <= number < FILLER)
        return self.measured

    def starts(self) -> list[tuple[int, int, int]]:
        """Return (ns, job number, process) of every measured start, in order of time."""
        rows = zip(self.words[1::3], self.words[::3], self.words[2::3], strict=True)
        return sorted(row for row in rows if 0 <= row[1] < FILLER)


@dataclass(frozen=True, slots=True)
class Workers:
    processes: list[subprocess.Popen[bytes]]
    record: Record
    log: Path

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def check(self) -> None:
        """Raise ClientError if a worker has exited."""
        if any(process.poll() is not None for process in self.processes):
            raise ClientError(f"worker ended: {self.log.read_text(errors='replace').strip()[-1500:]}")


@contextlib.contextmanager
def workers(bench: Bench, system: System, place: Place, settings: Settings, processes: int) -> Iterator[Workers]:
    """Start workers of this system; stop them and their subprocesses at the end."""
    bench.record.write_bytes(b"")
    environment = bench.environment(system, place, settings)
    each = [processes] if system.supervised else [1] * processes
    with bench.worker_log.open("wb") as log:
        launched = [
            subprocess.Popen(
                [*program(system, bench.cache), "worker", str(count)],
                env=environment,
                cwd=bench.data,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            for count in each
        ]
    try:
        yield Workers(launched, Record(bench.record), bench.worker_log)
    finally:
        for process in launched:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process and its subprocesses."""
    descendants = tree(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS_MAX)
    for pid, since in descendants.items():
        if started(pid) == since:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()
    time.sleep(_FAREWELL_SECONDS)
