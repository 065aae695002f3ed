"""The started jobs of a worker process, in memory that its supervisor can read even if the process hangs or is dead.

A slot is 64 bytes: lease (0 when free), start and deadline on the machine's monotonic clock, job id.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rowlock.storage.records import JobId

_SLOT = struct.Struct("<qdd36s4x")
_WORDS = _SLOT.size // 8


@dataclass(frozen=True, slots=True)
class Started:
    """A job that a worker process has started and not ended."""

    job_id: JobId
    lease: int
    started: float
    deadline: float | None


class Slots:
    """A table of started jobs in shared or private memory."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self._words = memoryview(memory).cast("q")

    @classmethod
    def private(cls, count: int) -> Slots:
        return cls(bytearray(count * _SLOT.size))

    @classmethod
    def shared(cls, descriptor: int) -> Slots:
        return cls(mmap.mmap(descriptor, os.fstat(descriptor).st_size))

    def begin(self, index: int, job_id: JobId, lease: int, now: float, deadline: float | None) -> None:
        _SLOT.pack_into(self._memory, index * _SLOT.size, lease, now, deadline or 0.0, job_id.encode())

    def end(self, index: int) -> None:
        self._words[index * _WORDS] = 0

    def started(self) -> Iterator[Started]:
        for lease, begun, deadline, job_id in _SLOT.iter_unpack(self._memory):
            if lease:
                yield Started(job_id.decode(), lease, begun, deadline or None)


def allocate(count: int) -> int:
    """Return a file descriptor of memory for `count` slots, to be shared with a child process."""
    descriptor = os.memfd_create("rowlock-slots", 0)
    os.ftruncate(descriptor, count * _SLOT.size)
    return descriptor
