"""The application under attack: handlers that record what they do in the journal, and some that do their worst.

With FAULTS_MUTANT set, every process that imports this module runs without one guard of the product, so that a test
can show that its attack notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults import mutation
from faults.journal import Journal
from rowlock import Backoff, Job, Permanent, RateLimited, Retry, Rowlock, Snooze
from rowlock.settings import Settings

SLICE_SECONDS = 0.01
POISON_MEMORY_BYTES = 64 * 1_048_576

journal = Journal.from_environment()


@contextmanager
def noted(job: Job) -> Iterator[None]:
    """Write the start and end of an attempt to the journal; `stopped` if it was interrupted."""
    journal.write("start", job.id, job.lease, job.attempt)
    try:
        yield
    except BaseException as error:
        journal.write("stopped", job.id, job.lease, job.attempt, type(error).__name__)
        raise
    journal.write("end", job.id, job.lease, job.attempt)


async def nap(job: Job, seconds: float = 0.0, again: float | None = None) -> dict[str, int]:
    """Sleep for `seconds` in small steps (`again` on later attempts) and report progress, as a good handler does."""
    with noted(job):
        job.progress(10, f"lease {job.lease}")
        await asyncio.sleep(seconds if again is None or job.lease == 1 else again)
        job.progress(90, f"lease {job.lease}")
    return {"lease": job.lease}


def plain(job: Job, seconds: float = 0.0, again: float | None = None) -> dict[str, int]:
    """Do the same as `nap`, in a thread."""
    with noted(job):
        job.progress(10, f"lease {job.lease}")
        ends = time.monotonic() + (seconds if again is None or job.lease == 1 else again)
        while time.monotonic() < ends:
            time.sleep(SLICE_SECONDS)
        job.progress(90, f"lease {job.lease}")
    return {"lease": job.lease}


def stubborn(job: Job, seconds: float = 0.0) -> None:
    """Sleep in one call that nothing interrupts."""
    with noted(job):
        time.sleep(seconds)


async def hold(job: Job, seconds: float = 0.0) -> None:
    """Hold the GIL: no other thread, event loop or signal handler of this process runs."""
    with noted(job):
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


async def noop(job: Job) -> None:
    """Do nothing."""


async def tick(job: Job) -> None:
    """Write one line to the journal."""
    journal.write("end", job.id, job.lease, job.attempt)


async def padded(job: Job, text: str) -> None:
    """Ignore a payload that takes up space."""
    journal.write("end", job.id, job.lease, job.attempt)


async def guarded(job: Job, seconds: float = 0.0) -> dict[str, str]:
    """Sleep under an idempotency lock."""
    with noted(job):
        await asyncio.sleep(seconds)
    return {"done by": job.id}


async def fails(job: Job) -> None:
    """Fail permanently."""
    raise Permanent("it always does")


async def ends(job: Job, how: str) -> str:
    """End as the payload asks: succeed, fail, retry or snooze."""
    with noted(job):
        if how == "fail":
            raise Permanent("as asked")
        if job.lease == 1 and how == "retry":
            raise Retry("as asked", after=0.1)
        if job.lease == 1 and how == "snooze":
            raise Snooze(0.1, "as asked")
    return how


async def die(job: Job, how: str) -> None:
    """Kill its process or the whole process tree."""
    journal.write("start", job.id, job.lease, job.attempt)
    match how:
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "memory":
            _exhaust_memory()
        case "tree":
            os.killpg(0, signal.SIGKILL)


def _exhaust_memory() -> None:
    """Allocate until MemoryError, then abort, as if the kernel had refused more memory."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + POISON_MEMORY_BYTES, resource.RLIM_INFINITY))
    kept: list[bytearray] = []
    try:
        while True:
            kept.append(bytearray(1_048_576))
    except MemoryError:
        os.abort()


DISTURBANCES = {
    # Read all of standard input as it arrives.
    "reads": "readlink /proc/$$/fd/0 > {out}.stdin; while :; do cat >> {out}.read; sleep 0.01; done",
    "nibbles": "head -c 3 > {out}.nibbled; exec sleep 60",  # a few bytes, so that the rest makes no sense
    "closes": "ls /proc/self/fd > {out}.open; exec 0<&- 3<&- 4<&- 5<&- 6<&-; exec sleep 60",
    "ignores": "trap '' TERM INT HUP PIPE; sleep 60 & sleep 60",
}


def disturb(job: Job, forks: bool = True) -> None:
    """Start subprocesses that inherit every descriptor, use it and outlive the worker; then run on for 60 s."""
    with noted(job):
        for name, script in DISTURBANCES.items():
            out = f"{journal.path}.{name}"
            pid = os.posix_spawn("/bin/sh", ["sh", "-c", script.format(out=out)], os.environ)  # inherits all
            journal.write("subprocess", job.id, note=pid)
        if forks:
            pid = os.fork()
            if pid == 0:
                _disturb_as_fork()
            journal.write("subprocess", job.id, note=pid)
        journal.write("disturbed", job.id, job.lease, job.attempt)
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            time.sleep(SLICE_SECONDS)


def _disturb_as_fork() -> None:
    """Act as a forked copy of the worker that reads from its descriptors and ignores requests to stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    taken = b""
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        with contextlib.suppress(OSError):
            if int(name) == 0 or int(name) >= 100:  # the store's own sockets have lower numbers
                taken += os.read(int(name), 3)
    Path(f"{journal.path}.forked").write_bytes(taken)
    time.sleep(60)
    os._exit(0)


async def deaf(job: Job) -> None:
    """Close the control channel, ignore SIGTERM and block the event loop."""
    journal.write("start", job.id, job.lease, job.attempt)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= 200:
            os.close(int(name))
    journal.write("disturbed", job.id, job.lease, job.attempt)
    time.sleep(60)


async def keeps(job: Job) -> None:
    """Write in a transaction to the document that every job of this type writes; the first attempt hangs. MongoDB."""
    async with job.transaction() as transaction:
        write = {"q": {"_id": "all"}, "u": {"$inc": {"jobs": 1}}}
        await transaction.execute({"update": "kept", "updates": [write]})
        journal.write("start", job.id, job.lease, job.attempt)
        if job.lease == 1:
            await asyncio.sleep(600)


async def throttled(job: Job, until: float) -> None:
    """Raise RateLimited until a time given by the clock of another service."""
    from datetime import UTC, datetime

    with noted(job):
        if job.lease == 1:
            raise RateLimited("far", until=datetime.fromtimestamp(until, UTC))


HANDLERS = (nap, plain, stubborn, hold, noop, tick, padded, ends, disturb, deaf, keeps)


def make_app(settings: Settings | None = None, handlers: Iterable[Callable[..., Any]] = HANDLERS) -> Rowlock:
    made = Rowlock(settings=settings, clock=mutation.clock())
    many = Backoff(max_attempts=1_000, base_seconds=0)
    made.limit("far", concurrency=100)
    made.queue("aside")
    for handler in handlers:
        made.job(handler.__name__, retry=many)(handler)
    made.job("die")(die)
    made.job("fails")(fails)
    made.job("guarded", retry=many, lock=made.lock("work", "one"))(guarded)
    made.job("throttled", limit="far", retry=many)(throttled)
    return made


mutation.apply()
app = make_app()
