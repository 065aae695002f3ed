"""One piece of work aside, while the next is made ready."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Aside:
    """Does one thing at a time in a thread of its own; what goes wrong there is raised at the next, or at the end."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Begin this when the last is done; at most one waits, so memory is bounded by two."""
        self.wait()
        self._last = self._thread.submit(work)

    def wait(self) -> None:
        """Return when the last is done."""
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
