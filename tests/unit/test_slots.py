"""Slots: the started jobs of a process, readable when it hangs or is dead."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from rowlock.ids import uuid7s
from rowlock.jobs.worker.started_jobs import Slots, Started, allocate

ONE, TWO = uuid7s(2)


def test_a_slot_tells_what_runs_in_it() -> None:
    slots = Slots.private(4)
    assert list(slots.started()) == []
    slots.begin(0, ONE, 7, 100.5, None)
    slots.begin(3, TWO, 2**40, 101.0, 160.25)
    assert list(slots.started()) == [Started(ONE, 7, 100.5, None), Started(TWO, 2**40, 101.0, 160.25)]
    slots.end(0)
    assert [started.job_id for started in slots.started()] == [TWO]
    slots.begin(3, ONE, 8, 102.0, None)
    assert list(slots.started()) == [Started(ONE, 8, 102.0, None)]


def test_a_slot_takes_64_bytes_and_any_number_fits() -> None:
    descriptor = allocate(10_000)
    try:
        assert os.fstat(descriptor).st_size == 640_000
        slots = Slots.shared(descriptor)
        slots.begin(9_999, ONE, 1, 1.0, None)
        assert len(list(slots.started())) == 1
    finally:
        os.close(descriptor)


def test_the_supervisor_reads_what_a_dead_process_had_begun() -> None:
    descriptor = allocate(2)
    code = (
        "import os, time; from rowlock.jobs.worker.started_jobs import Slots; now = time.monotonic(); "
        f"Slots.shared({descriptor}).begin(1, {ONE!r}, 5, now, now + 60); os.kill(os.getpid(), 9)"
    )
    try:
        ended = subprocess.run([sys.executable, "-c", code], pass_fds=(descriptor,), timeout=60)
        assert ended.returncode == -9
        (started,) = Slots.shared(descriptor).started()
        assert (started.job_id, started.lease) == (ONE, 5)
        assert started.deadline is not None
        assert 0 < started.deadline - time.monotonic() <= 60, "the clock is the machine's, the same for both"
    finally:
        os.close(descriptor)
