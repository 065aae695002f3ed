"""Handlers one after the other in one task, each in a context of its own."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any


class Isolated:
    """Awaits a coroutine in a copy of the context: what it sets, the next job does not see.

    A task per job would do the same for ten times the price.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        run, coroutine = copy_context().run, self._coroutine
        step: Any = coroutine.send
        argument: Any = None
        while True:
            try:
                yielded = run(step, argument)
            except StopIteration as end:
                return end.value
            try:
                argument = yield yielded
                step = coroutine.send
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:
                step, argument = coroutine.throw, error
