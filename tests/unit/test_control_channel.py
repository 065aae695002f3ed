"""The control channel of a child process, and what a worker does when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from rowlock import control_channel
from rowlock.jobs.worker.process import LATE_SECONDS, obey

CHILD = """
import os, signal, subprocess, sys, time
from rowlock import control_channel
{before}
channel = control_channel.take_standard_input(keep=[{kept}])
os.write(1, (os.readlink("/proc/self/fd/0") + "\\n").encode())
os.write(1, repr(sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) != channel)[4:]).encode() + b"\\n")
inherited = subprocess.check_output("exec ls /proc/self/fd", shell=True, close_fds=False)
os.write(1, inherited.replace(b"\\n", b" ") + b"\\n")
pid = os.fork()
if pid == 0:
    os._exit(len(os.read(channel, 100)))
os.write(1, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode() + b"\\n")
os.write(1, os.read(channel, 100))
"""


def test_subprocesses_and_forks_get_neither_the_channel_nor_what_was_inherited() -> None:
    kept, leaked = os.pipe()
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs:
            ours.sendall(b"order\n")
            done = subprocess.run(
                [sys.executable, "-c", CHILD.format(before="", kept=kept)],
                stdin=theirs,
                stdout=subprocess.PIPE,
                pass_fds=(kept, leaked),
                check=True,
            )
    finally:
        os.close(kept)
        os.close(leaked)
    standard_input, opened, inherited, forked, order = done.stdout.decode().splitlines()
    assert standard_input == os.devnull
    assert opened == f"[{kept}]"
    assert inherited.split() == ["0", "1", "2", "3"], "3 is the listing itself"
    assert forked == "0"
    assert order == "order"


CHECKING = """
import asyncio, os, sys
from rowlock import Job, Rowlock
from rowlock.ids import uuid7
from rowlock.jobs.worker.process import serve
from rowlock.jobs.worker.start_request import StartRequest
from rowlock.jobs.worker.started_jobs import Slots
app = Rowlock(database_url="sqlite:///unused.db")
@app.job("a")
async def a(job: Job) -> None: ...
async def hang():
    os.write(1, b"checking\\n")
    await asyncio.sleep(3_600)
async def work():
    app.engine.store.check_schema = hang
    request = StartRequest("", "", uuid7(), ["default"], False, 1, [])
    return await serve(request, app, os.dup(0), Slots.private(100))
os._exit(asyncio.run(work()))
"""


@pytest.mark.parametrize("by_signal", [False, True], ids=["supervisor-gone", "sigterm"])
def test_a_worker_whose_store_hangs_at_the_start_stops(by_signal: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", CHECKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"checking\n"
            if by_signal:
                child.send_signal(signal.SIGTERM)
            else:
                child.stdin.close()
            assert child.wait(timeout=10) == 0
        finally:
            child.kill()


LEASH = """
import os, signal, time
from rowlock import control_channel
pid = os.fork()
if pid:
    os.read(0, 1)
    os._exit(0)  # the parent is gone
leash = control_channel.Leash(lambda: os.write(1, b"stop\\n"), {grace})
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, f"{{os.getpid()}}\\n".encode())
while True:
    time.sleep(1)
"""


def test_a_process_that_does_not_stop_is_killed_after_its_parents_death() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEASH.format(grace=0.2)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, signal.SIGTERM)
        parent.stdin.close()
        assert parent.stdout.read() == b"stop\n"  # returns when the orphan has ended, too


class Worker:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def note_held(self, held: Any, asked_at: float) -> None:
        self.heard.append((held, asked_at))


class Log:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def warning(self, event: str, reason: str) -> None:
        self.reasons.append(reason)

    error = warning


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        (b"", "the supervisor has exited; this worker stops"),
        (b'{"held": [], "as', "JSONDecodeError"),
        (b"[]\n", "TypeError"),
        (b'{"held": [[1]], "asked_at": 1}\n', "TypeError"),
    ],
)
async def test_however_the_channel_ends_the_worker_is_told(rest: bytes, reason: str) -> None:
    ours, theirs = socket.socketpair()
    worker, log, ended = Worker(), Log(), asyncio.Event()
    with ours:
        listening = asyncio.create_task(obey(worker, theirs.detach(), ended.set, log))  # type: ignore[arg-type]
        ours.sendall(b'{"held": [], "asked_at": 2.5}\n' + rest)
        if not rest.endswith(b"\n"):
            ours.shutdown(socket.SHUT_WR)
        await ended.wait()
        await listening
    assert worker.heard == [([], 2.5)]
    (said,) = log.reasons
    assert reason in said


def test_an_orphan_ends_within_its_promise_on_a_machine_that_is_busy() -> None:
    """The promise is the grace period and a second, the kill included; a third of the second is left to the machine."""
    assert control_channel.LOOK_SECONDS + LATE_SECONDS <= 2 / 3
