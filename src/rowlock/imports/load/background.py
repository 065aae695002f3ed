"""Run one task in a background thread while the caller prepares the next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Aside:
    """Runs one task at a time in its own thread; the next call, or the end of the block, raises its error."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Wait for the previous task, then start this one; so memory is bounded by two tasks."""
        self.wait()
        self._last = self._thread.submit(work)

    def wait(self) -> None:
        """Wait for the previous task and raise its error."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Aside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)
