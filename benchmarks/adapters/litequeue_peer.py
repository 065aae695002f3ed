"""litequeue has no worker, so this is the loop of its documentation (pop, run, done)."""

# The package is installed in the peers' environment only.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import threading
import time

from litequeue import LiteQueue

from benchmarks.adapters.peer import DATABASE, SETTINGS, Peer, main, record


class Lite(Peer):
    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def queue(self) -> LiteQueue:
        if not hasattr(self._local, "queue"):
            self._local.queue = LiteQueue(DATABASE)
        return self._local.queue

    def setup(self) -> None:
        self.queue.close()

    def enqueue(self, number: int) -> None:
        self.queue.put(str(number))

    def enqueue_many(self, numbers: range) -> None:
        with self.queue.transaction():
            for number in numbers:
                self.queue.put(str(number))

    def worker(self, processes: int) -> None:
        while True:
            message = self.queue.pop()
            if message is None:
                time.sleep(SETTINGS.get("poll_seconds", 0.05))
                continue
            record(int(message.data))
            self.queue.done(message.message_id)


if __name__ == "__main__":
    main(Lite())
