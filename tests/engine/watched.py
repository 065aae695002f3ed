"""WatchedStore: wraps a real store so that a test can count, await, delay and fail its calls."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rowlock.errors import StoreError, StoreUnavailable
from rowlock.storage.contract import Store, Wake
from rowlock.storage.kinds import Kind

ALWAYS = 1_000_000


def _named(verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return the name of a call; of one about records, with their table and index: "read tokens by digest"."""
    if not args or not isinstance(args[0], Kind):
        return verb
    by = options.get("by")
    return f"{verb} {args[0].table}" if by is None else f"{verb} {args[0].table} by {by}"


class WatchedStore:
    """Forwards every verb to a store, like a proxy between a worker and its database."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.deaf = False  # if True, no hints arrive
        self.calls: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self.arguments: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._refused: dict[str, deque[BaseException]] = defaultdict(deque)
        self._lost: dict[str, deque[Callable[[Any], bool]]] = defaultdict(deque)
        self._gates: dict[str, asyncio.Event] = {}
        self._quiet = asyncio.Event()
        self._waiting: list[tuple[Callable[[str, Any], bool], asyncio.Future[Any]]] = []

    # -- control by the test -----------------------------------------------------------------------

    def refuse(self, verb: str, times: int = 1, error: BaseException | None = None) -> None:
        """Make the next calls fail before they reach the store."""
        self._refused[verb].extend([error or StoreUnavailable("the database is away")] * times)

    def lose_reply(self, verb: str, times: int = 1, such: Callable[[Any], bool] = lambda answer: True) -> None:
        """Lose the reply of the next calls whose answer is `such`: they are committed, but the caller gets an error."""
        self._lost[verb].extend([such] * times)

    def mend(self, verb: str) -> None:
        self._refused.pop(verb, None)
        self._lost.pop(verb, None)

    def held(self, verb: str) -> AbstractContextManager[None]:
        """Execute the calls made in this block, but delay their non-empty answers until its end."""
        return self._gate(f"{verb} done")

    def stalled(self, verb: str) -> AbstractContextManager[None]:
        """Delay the calls made in this block until its end."""
        return self._gate(verb)

    @contextmanager
    def _gate(self, place: str) -> Iterator[None]:
        gate = self._gates[place] = asyncio.Event()
        try:
            yield
        finally:
            del self._gates[place]
            gate.set()

    def next(self, verb: str, such: Callable[[Any], bool] = lambda answer: True) -> asyncio.Future[Any]:
        """Return a future of the next call's answer that is `such`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((lambda name, answer: name == verb and such(answer), future))
        return future

    async def quiet(self) -> None:
        """Wait until the store executes no call."""
        while +self.under_way:
            self._quiet.clear()
            await self._quiet.wait()

    # -- forwarding --------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            verb = _named(name, args, options)
            self.calls[verb] += 1
            self.arguments[verb].append(args)
            if self._refused[verb]:
                self._tell(f"{verb} refused", None)
                raise self._refused[verb].popleft()
            if verb in self._gates:
                self._tell(f"{verb} stalled", None)
                await self._gates[verb].wait()
            self.under_way[verb] += 1
            try:
                answer = await found(*args, **options)
            except StoreError as error:
                self._tell(f"{verb} failed", error)
                raise
            finally:
                self.under_way[verb] -= 1
                self._quiet.set()
            gate = self._gates.get(f"{verb} done")
            self._tell(verb, answer)
            if gate is not None and answer:
                await gate.wait()
            if self._lost[verb] and self._lost[verb][0](answer):
                self._lost[verb].popleft()
                raise StoreUnavailable("the connection broke")
            return answer

        return call

    async def listen(self, wake: Wake) -> None:
        if self.deaf:
            await asyncio.Event().wait()
        if self._refused["listen"]:
            raise self._refused["listen"].popleft()
        if "listen" in self._gates:
            await self._gates["listen"].wait()

        def heard(kind: str, name: str) -> None:
            wake(kind, name)
            self._tell(f"hint of {kind}", name)

        await self.inner.listen(heard)

    def _tell(self, verb: str, answer: Any) -> None:
        for waiting in list(self._waiting):
            wanted, future = waiting
            if future.done():
                self._waiting.remove(waiting)
            elif wanted(verb, answer):
                self._waiting.remove(waiting)
                future.set_result(answer)
