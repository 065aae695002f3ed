"""The oracle: a journal in which handlers and producers record events durably before they continue, outside stores."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "FAULTS_JOURNAL"


class Entry(NamedTuple):
    what: str
    job: str
    lease: int
    attempt: int
    pid: int
    at: float  # the machine's monotonic clock, the same in all processes
    note: Any


class Journal:
    """A file that any number of processes append to. A line is complete or absent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._entries: list[Entry] = []
        self._read_bytes = 0

    @classmethod
    def from_environment(cls) -> Journal:
        return cls(Path(os.environ.get(VARIABLE, os.devnull)))

    def write(self, what: str, job: str, lease: int = 0, attempt: int = 0, note: Any = None) -> None:
        """Append one line, durable when this returns."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        line = json.dumps([what, job, lease, attempt, os.getpid(), time.monotonic(), note]).encode() + b"\n"
        written = os.write(self._file, line)
        assert written == len(line)
        if self.path != Path(os.devnull):
            os.fsync(self._file)

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over all lines. Reads and parses only new ones, because tests look many times a second."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                for line in file:
                    if line.endswith(b"\n"):  # the last line may be incomplete
                        self._entries.append(Entry(*json.loads(line)))
                        self._read_bytes += len(line)
        return iter(list(self._entries))

    def all(self, what: str) -> list[Entry]:
        return [entry for entry in self if entry.what == what]

    def by_job(self, what: str) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.all(what):
            found[entry.job].append(entry)
        return found

    def jobs(self, what: str) -> set[str]:
        return {entry.job for entry in self.all(what)}
