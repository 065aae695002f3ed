"""The objects that declarations return: a handler that can enqueue itself, and an idempotency lock to enter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from rowlock.ids import uuid7
from rowlock.jobs.locks import Lock, LockRule
from rowlock.observe import logs
from rowlock.storage.records import Receipt

if TYPE_CHECKING:
    from rowlock.app import Rowlock

P = ParamSpec("P")
R = TypeVar("R")


class Handler(Generic[P, R]):
    """A registered handler: still callable, and able to enqueue itself."""

    def __init__(self, app: Rowlock, name: str, function: Callable[P, R]) -> None:
        self._app = app
        self.name = name
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def enqueue(self, **payload: Any) -> Receipt:
        """Enqueue this job; the keyword arguments are its payload. For options use `app.enqueue`."""
        return await self._app.enqueue(self.name, payload)


class IdempotencyLock:
    """An idempotency lock, for `lock=` of a job type or for `async with`, which takes it."""

    def __init__(self, app: Rowlock, rule: LockRule, company_id: str | None, payload: Mapping[str, Any]) -> None:
        self._app = app
        self.rule = rule
        self._company_id = company_id
        self._payload = payload
        self._lock: Lock | None = None

    async def __aenter__(self) -> Lock:
        lock_context = self._app.engine.lock_context(logs.get())
        key = self.rule.key(self._payload, self._company_id)
        self._lock = Lock(lock_context, key, self._payload, uuid7())
        return await self._lock.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        await self._lock.__aexit__(kind, error, trace)
