"""The interface of the Python adapters, the no-op job, and the commands that the driver calls.

The driver runs an adapter as `python -m benchmarks.adapters.NAME COMMAND ...`, always in a fresh
process of that system's own environment, and reads the last line of its output, which is JSON:

    setup | one N | bulk N | load N | concurrent N TASKS | paced N PER_SECOND | http N CONNECTIONS
    | fill WAITING FINISHED | worker PROCESSES
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

DATABASE = os.environ.get("BENCH_DATABASE", "")
SETTINGS: dict[str, Any] = json.loads(os.environ.get("BENCH_SETTINGS", "{}"))

FILLER = 10_000_000  # jobs that only fill the store have numbers from here on
WARM = -1  # opens connections and prepares statements; the driver ignores negative numbers

_RECORD = struct.Struct("<qqq")
_record_file = -1
_worker = 0


def record(number: int) -> None:
    """The body of the job: append (number, monotonic ns, process) to a file on tmpfs."""
    global _record_file, _worker
    if _record_file < 0:
        _record_file = os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND)
        _worker = os.getpid()
    os.write(_record_file, _RECORD.pack(number, time.monotonic_ns(), _worker))


class Peer:
    """One job queue. Every method but `worker` may be synchronous or asynchronous, `enqueue` deciding which."""

    def setup(self) -> Any:
        """Create the schema in an empty store."""

    def connect(self) -> Any:
        """Open the connections for enqueueing; not timed."""

    def close(self) -> Any:
        """Close them."""

    def enqueue(self, number: int) -> Any:
        """Enqueue one job and return when the store has accepted it."""
        raise NotImplementedError

    def enqueue_many(self, numbers: range) -> Any:
        """Enqueue these jobs through the fastest call that the system offers."""
        raise NotImplementedError

    def load(self, numbers: range) -> Any:
        """Do the same, not timed, to fill the queue for a drain."""
        return self.enqueue_many(numbers)

    def fill(self, waiting: int, finished: int) -> Any:
        """Write jobs that sort after all others, and finished ones; return what was written."""
        raise NotImplementedError

    def http(self, requests: int, connections: int) -> Any:
        """Enqueue over HTTP; return requests per second, and those of an empty route."""

    def pages(self, jobs: int, asked: int) -> Any:
        """Write this many jobs and request the overview; return its time and size."""
        raise NotImplementedError

    def open_pages(self, pages: int, seconds: int) -> Any:
        """Keep this many pages open for this long."""
        raise NotImplementedError

    def health(self, jobs: int, failures: int, asked: int) -> Any:
        """Write this many finished jobs and failures; return the duration of each health query."""
        raise NotImplementedError

    def worker(self, processes: int) -> None:
        """Run a worker with SETTINGS until it is stopped."""
        raise NotImplementedError


def main(peer: Peer) -> None:
    """Run the command on the command line against this peer."""
    command, numbers = sys.argv[1], [int(argument) for argument in sys.argv[2:]]
    if command == "worker":
        use_uvloop()
        peer.worker(*numbers)
    else:
        asynchronous = inspect.iscoroutinefunction(peer.enqueue)
        use_uvloop()
        run: Callable[[Any], Any] = asyncio.run if asynchronous else _run_without_loop
        print(json.dumps(run(_client(peer, command, numbers, asynchronous))), flush=True)


def use_uvloop() -> None:
    if SETTINGS.get("uvloop"):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def chunks(numbers: range, size: int) -> Iterator[range]:
    for start in range(numbers.start, numbers.stop, size):
        yield range(start, min(start + size, numbers.stop))


async def _client(peer: Peer, command: str, numbers: list[int], asynchronous: bool) -> dict[str, Any]:
    if command == "setup":
        await _done(peer.setup())
        return {}
    await _done(peer.connect())
    try:
        if command == "fill":
            return dict(await _done(peer.fill(*numbers)))
        if command == "http":
            return dict(await _done(peer.http(*numbers)))
        if command == "pages":
            return dict(await _done(peer.pages(*numbers)))
        if command == "open-pages":
            return dict(await _done(peer.open_pages(*numbers)))
        if command == "health":
            return {"milliseconds": await _done(peer.health(*numbers))}
        if command == "load":
            await _done(peer.load(range(numbers[0])))
            return {}
        await _done(peer.enqueue(WARM))
        if command == "paced":
            return {"called_ns": await _paced(peer, *numbers)}
        spread = _concurrently if asynchronous else _in_threads
        if command == "concurrent":
            await spread(peer, [WARM] * numbers[1], numbers[1])
        started = time.perf_counter()
        if command == "one":
            for number in range(numbers[0]):
                await _done(peer.enqueue(number))
        elif command == "bulk":
            await _done(peer.enqueue_many(range(numbers[0])))
        elif command == "concurrent":
            await spread(peer, range(numbers[0]), numbers[1])
        else:
            raise SystemExit(f"unknown command {command}")
        return {"jobs": numbers[0], "seconds": time.perf_counter() - started}
    finally:
        await _done(peer.close())


async def _paced(peer: Peer, count: int, per_second: int) -> list[int]:
    """Enqueue at a steady rate; return the time of each call."""
    start = time.monotonic() + 1.0
    called = []
    for number in range(count):
        await _pause(start + number / per_second - time.monotonic())
        called.append(time.monotonic_ns())
        await _done(peer.enqueue(number))
    return called


async def _concurrently(peer: Peer, numbers: Sequence[int], tasks: int) -> None:
    todo = iter(numbers)

    async def enqueuer() -> None:
        for number in todo:
            await peer.enqueue(number)

    await asyncio.gather(*(enqueuer() for _ in range(tasks)))


async def _in_threads(peer: Peer, numbers: Sequence[int], tasks: int) -> None:
    with ThreadPoolExecutor(tasks) as pool:
        list(pool.map(peer.enqueue, numbers))


async def _pause(seconds: float) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        time.sleep(max(0.0, seconds))
    else:
        await asyncio.sleep(max(0.0, seconds))


async def _done(value: Awaitable[Any] | Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _run_without_loop(coroutine: Any) -> Any:
    """Run a coroutine that never waits, so that a synchronous peer needs no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a synchronous peer awaited something")
