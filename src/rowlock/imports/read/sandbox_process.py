"""The child process of the sandbox: starts it, collects its output and kills it reliably.

A malicious file may have taken it over. So its output is bounded, nothing waits for its pipes (a process that it
started may keep them open), and its whole process group is killed with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import cast

ANSWER_BYTES_MAX = 64 << 20
ERROR_BYTES_MAX = 64 << 20  # of stderr; only the end is kept
_TAIL_BYTES = 4_096
_PROGRESS = b'{"done":'
_PROGRESS_BYTES = 64
_THREADS = "2"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Child(asyncio.SubprocessProtocol):
    """A running planner: its last progress line, its answer, and `over`, which is set when no more will come."""

    def __init__(self) -> None:
        self.progress: bytes | None = None
        self.answer: bytes | None = None
        self.code: int | None = None  # exit code, or a negative signal number
        self.stray = False  # its output exceeded a limit
        self.news = asyncio.Event()
        self.over = asyncio.Event()  # it ended, or closed its output, or has answered
        self.ended = asyncio.Event()
        self._line = bytearray()
        self._tail = bytearray()
        self._error_bytes = 0
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def pid(self) -> int:
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def errors(self) -> str:
        """The end of its stderr."""
        return self._tail.decode(errors="backslashreplace").strip()

    @property
    def last_words(self) -> str:
        """The last line of `errors`."""
        return self.errors.rpartition("\n")[2]

    def tell(self, data: bytes) -> None:
        """Write to its stdin; ignored if it has died, which `ended` reports."""
        assert self._transport is not None
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None and not stdin.is_closing():
            cast(asyncio.WriteTransport, stdin).write(data)

    def resident_bytes(self) -> int:
        """Return its resident memory in bytes."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except (OSError, IndexError):
            return 0  # it has ended, or this system has no /proc

    def kill(self) -> None:
        """Kill it and the rest of its process group."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it if it still runs, and wait until it is reaped."""
        assert self._transport is not None
        self.kill()
        try:
            await asyncio.shield(asyncio.ensure_future(self.ended.wait()))
        finally:
            self._transport.close()

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._hear(data)
            return
        self._tail += data
        del self._tail[:-_TAIL_BYTES]
        self._error_bytes += len(data)
        if self._error_bytes > ERROR_BYTES_MAX:
            self._stray()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self.over.set()

    def process_exited(self) -> None:
        assert self._transport is not None
        self.code = self._transport.get_returncode()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), signal.SIGKILL)  # processes that it left behind
        self.ended.set()
        # Its last output may still be in the pipe; the loop reads that before it calls this.
        asyncio.get_running_loop().call_later(0.1, self.over.set)

    def _hear(self, data: bytes) -> None:
        if self.answer is not None or self.stray:
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            line = bytes(self._line) + line
            self._line.clear()
            if len(line) > _PROGRESS_BYTES or not line.startswith(_PROGRESS):
                self.answer = line
                self.over.set()
                return
            self.progress = line
            self.news.set()
        self._line += rest
        if len(self._line) > ANSWER_BYTES_MAX:
            self._stray()

    def _stray(self) -> None:
        self.stray = True
        self._line.clear()
        self.kill()


async def spawn() -> Child:
    """Start a planner that waits for its plan request; its environment has only the paths to the code."""
    _, child = await asyncio.get_running_loop().subprocess_exec(
        Child,
        *command(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # so that its process group can be killed as a whole
        env={
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "POLARS_MAX_THREADS": _THREADS,
            "LC_ALL": "C.UTF-8",
        },
    )
    return child


def command() -> list[str]:
    """Return the planner's command line; -P: no modules from the current folder, which may hold anyone's files."""
    return [sys.executable, "-P", "-m", "rowlock.imports.read.planner", str(os.getpid())]
