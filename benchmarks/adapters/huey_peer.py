"""huey on SQLite: WAL and synchronous=FULL by default; taken and finished jobs are deleted."""

# The package is installed in the peers' environment only.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os
import sys
from typing import Any

from huey import SqliteHuey

from benchmarks.adapters.peer import DATABASE, FILLER, SETTINGS, Peer, main, record

huey = SqliteHuey("bench", filename=DATABASE)


@huey.task()
def noop(number: int) -> None:
    record(number)


class Huey(Peer):
    def enqueue(self, number: int) -> None:
        noop(number)

    def enqueue_many(self, numbers: range) -> None:
        for number in numbers:  # it has no bulk call
            noop(number)

    def load(self, numbers: range) -> None:
        _insert(numbers, 0.0)

    def fill(self, waiting: int, finished: int) -> dict[str, Any]:
        _insert(range(FILLER, FILLER + waiting), -10.0)
        return {"waiting": waiting, "finished": 0, "how": "lower priority; it deletes what is done"}

    def worker(self, processes: int) -> None:
        options = [f"--{name}" if value is True else f"--{name}={value}" for name, value in SETTINGS.items()]
        command = ["-m", "huey.bin.huey_consumer", "benchmarks.adapters.huey_peer.huey", *options]
        os.execv(sys.executable, [sys.executable, *command])


def _insert(numbers: range, priority: float) -> None:
    storage = huey.storage
    tasks = (huey.serialize_task(noop.s(number)) for number in numbers)
    with storage.db(commit=True) as cursor:
        rows = ((storage.name, storage.to_blob(task), priority) for task in tasks)
        cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", rows)


if __name__ == "__main__":
    # Under its own name, so that the task is registered under the name that the consumer knows.
    from benchmarks.adapters import huey_peer

    main(huey_peer.Huey())
