"""The control channel from a parent to its child process; the child ends when the parent is gone.

The parent writes messages to the child's standard input. Handlers and their subprocesses must not read them, so the
child moves the channel to a high descriptor that no subprocess inherits, and puts /dev/null in its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import threading
from collections.abc import Callable, Collection

DESCRIPTOR_MIN = 1_000  # out of reach of code that closes "all" descriptors up to a round number
_DESCRIPTORS_LEFT = 8
_PR_SET_PDEATHSIG = 1
LOOK_SECONDS = 0.1  # between checks of the parent


def take_standard_input(keep: Collection[int] = ()) -> int:
    """Move standard input to a private descriptor and return that; standard input reads as empty from now on.

    Forked children get /dev/null for both numbers. Closes all other inherited descriptors except `keep`, which
    subprocesses do not inherit either: uvloop passes on every inheritable descriptor, and copies of this one.
    """
    _close_inherited(keep)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = DESCRIPTOR_MIN if soft == resource.RLIM_INFINITY else min(DESCRIPTOR_MIN, max(3, soft - _DESCRIPTORS_LEFT))
    private = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, least)
    _make_empty(0, inheritable=True)
    os.register_at_fork(after_in_child=lambda: _make_empty(private, inheritable=False))
    return private


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this signal when the parent dies; does nothing on systems without PR_SET_PDEATHSIG.

    The kernel sends it when the *thread* that started this process ends: start children from a long-lived thread.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


class Leash:
    """Ends this process when its parent is gone or the control channel has ended.

    Calls `stop` (from a thread) and kills the process if it has not ended `grace_seconds` later. It needs neither the
    event loop nor the channel nor a signal handler, any of which a handler can block, close or replace.
    """

    def __init__(self, stop: Callable[[], object], grace_seconds: float) -> None:
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._parent = os.getppid()
        self._cut = threading.Event()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rowlock-leash", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Stop the process because the channel has ended."""
        self._cut.set()

    def release(self) -> None:
        """Stop watching because the process ends by itself."""
        self._released.set()
        self._cut.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._cut.wait(LOOK_SECONDS):
            if os.getppid() != self._parent:
                break
        if not self._released.is_set():
            with contextlib.suppress(RuntimeError):  # the event loop is closed: the process ends anyway
                self._stop()
            if not self._released.wait(self._grace_seconds):
                os.kill(os.getpid(), signal.SIGKILL)


def _close_inherited(keep: Collection[int]) -> None:
    """Close the descriptors inherited through exec; those that Python has opened since are not inheritable."""
    with contextlib.suppress(FileNotFoundError):  # a system without /dev/fd
        for number in map(int, os.listdir("/dev/fd")):
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed already
                if number > 2 and os.get_inheritable(number):
                    if number in keep:
                        os.set_inheritable(number, False)
                    else:
                        os.close(number)


def _make_empty(descriptor: int, *, inheritable: bool) -> None:
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(empty, descriptor, inheritable=inheritable)
    finally:
        os.close(empty)
