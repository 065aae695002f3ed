"""What a supervisor tells a worker process to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

# Before anything slow: the terminal's Ctrl-C goes to the whole group, and the supervisor decides what it means.
BOOT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from rowlock.jobs.child import main; main()"


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is told on its first line of standard input."""

    app: str
    database_url: str
    worker_id: str
    queues: list[str]
    slots: int  # file descriptor
    drain: bool
    concurrency: int | None
    path: list[str]  # sys.path of the supervisor, so that the application is found again

    def line(self) -> bytes:
        return orjson.dumps(asdict(self)) + b"\n"
