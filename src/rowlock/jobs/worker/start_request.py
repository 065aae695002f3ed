"""The start request that a supervisor sends to a worker process."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import orjson

# Before slow imports: the terminal's Ctrl-C goes to the whole process group, and the supervisor decides what it means.
_BOOT = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "from rowlock.jobs.worker.process import main; main({!r}, {})"
)


def boot(database_url: str, slots: int) -> list[str]:
    """Return the command of a worker process; of the URL, which may hold a password, it shows only the scheme.

    `slots` is the descriptor of its table of started jobs.
    """
    return [sys.executable, "-c", _BOOT.format(urlsplit(database_url).scheme.lower(), slots)]


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The start request: the first line of a child's standard input."""

    app: str
    database_url: str
    worker_id: str
    queues: list[str]
    drain: bool
    concurrency: int | None
    path: list[str]  # sys.path of the supervisor, so that the application is found again

    def line(self) -> bytes:
        return orjson.dumps(asdict(self)) + b"\n"
