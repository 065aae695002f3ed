"""The application under attack: handlers that write down what they do, and some that do the worst.

With FAULTS_MUTANT set, one guard of the product is taken out of every process that imports this, so that a test
can show that its attack would notice.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults import mutants
from faults.journal import Journal
from rowlock import Backoff, Job, Permanent, RateLimited, Rowlock
from rowlock.settings import Settings

SLICE_SECONDS = 0.01
POISON_MEMORY_BYTES = 64 * 1_048_576

journal = Journal.from_environment()


@contextmanager
def noted(job: Job) -> Iterator[None]:
    """The start and the end of an attempt in the journal; `stopped` where it was made to end."""
    journal.write("start", job.id, job.lease, job.attempt)
    try:
        yield
    except BaseException as error:
        journal.write("stopped", job.id, job.lease, job.attempt, type(error).__name__)
        raise
    journal.write("end", job.id, job.lease, job.attempt)


async def nap(job: Job, seconds: float = 0.0, again: float | None = None) -> dict[str, int]:
    """Works for a while as good handlers do, for another while when it is not the first, and says how far it is."""
    with noted(job):
        job.progress(10, f"lease {job.lease}")
        await asyncio.sleep(seconds if again is None or job.lease == 1 else again)
        job.progress(90, f"lease {job.lease}")
    return {"lease": job.lease}


def plain(job: Job, seconds: float = 0.0, again: float | None = None) -> dict[str, int]:
    """The same in a thread."""
    with noted(job):
        job.progress(10, f"lease {job.lease}")
        ends = time.monotonic() + (seconds if again is None or job.lease == 1 else again)
        while time.monotonic() < ends:
            time.sleep(SLICE_SECONDS)
        job.progress(90, f"lease {job.lease}")
    return {"lease": job.lease}


def stubborn(job: Job, seconds: float = 0.0) -> None:
    """In one call that nothing interrupts."""
    with noted(job):
        time.sleep(seconds)


async def hold(job: Job, seconds: float = 0.0) -> None:
    """Keeps the interpreter to itself: no other thread of this process, no event loop, no signal handler runs."""
    with noted(job):
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


async def noop(job: Job) -> None:
    """Nothing, quickly."""


async def tick(job: Job) -> None:
    """One line, quickly."""
    journal.write("end", job.id, job.lease, job.attempt)


async def padded(job: Job, text: str) -> None:
    """Takes up space."""
    journal.write("end", job.id, job.lease, job.attempt)


async def guarded(job: Job, seconds: float = 0.0) -> dict[str, str]:
    """Work that one at a time may do."""
    with noted(job):
        await asyncio.sleep(seconds)
    return {"done by": job.id}


async def fails(job: Job) -> None:
    """At once, and for good."""
    raise Permanent("it always does")


async def die(job: Job, how: str) -> None:
    """Takes its process, or the whole tree, along."""
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
    """As the kernel would do it: nothing can be had any more, and the process cannot go on."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + POISON_MEMORY_BYTES, resource.RLIM_INFINITY))
    kept: list[bytearray] = []
    try:
        while True:
            kept.append(bytearray(1_048_576))
    except MemoryError:
        os.abort()


async def throttled(job: Job, until: float) -> None:
    """Is told by the other side when to come back, in the other side's time."""
    from datetime import UTC, datetime

    with noted(job):
        if job.lease == 1:
            raise RateLimited("far", until=datetime.fromtimestamp(until, UTC))


def make_app(settings: Settings | None = None) -> Rowlock:
    made = Rowlock(settings=settings, clock=mutants.clock())
    many = Backoff(max_attempts=1_000, base_seconds=0)
    made.limit("far", concurrency=100)
    made.queue("aside")
    for handler in (nap, plain, stubborn, hold, noop, tick, padded):
        made.job(handler.__name__, retry=many)(handler)
    made.job("die")(die)
    made.job("fails")(fails)
    made.job("guarded", retry=many, guard=made.guard("work", "one"))(guarded)
    made.job("throttled", limit="far", retry=many)(throttled)
    return made


mutants.apply()
app = make_app()
