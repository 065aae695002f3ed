"""An integration: a service, its credential, its limits, and the operations that write to it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from rowlock.errors import (
    BadPayload,
    IntegrationDisabled,
    OperationNotFound,
    SettingsError,
)
from rowlock.jobs.job import Job
from rowlock.jobs.payload import encode
from rowlock.jobs.policy import Backoff, QueueProfile, Unique
from rowlock.jobs.registry import JobType, checked_name
from rowlock.storage.records import OnConflict, Receipt
from rowlock.sync.accounts import Accounts, OfCompany
from rowlock.sync.client import Meaning
from rowlock.sync.client_pool import Address, ClientPool
from rowlock.sync.dispatcher import PERMANENT, Dispatcher
from rowlock.sync.monitor import monitor, stats
from rowlock.sync.operation import PRIORITIES, Operation, Template, check_template, compiled
from rowlock.sync.rate_limit import COURTESY, RateLimit, checked_limits
from rowlock.sync.response import Answer, is_refused, wait_of

if TYPE_CHECKING:
    from rowlock.app import Rowlock

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

RETRY = Backoff(max_attempts=6, base_seconds=60.0, factor=2.0, max_seconds=3_600.0)
CLAIM_MAX = 20
_DEADLINE_SECONDS = 540.0
_NAME_LENGTH_MAX = 60


class Integration:
    """A service that operations write to. Created by `app.integration(...)`."""

    def __init__(
        self,
        app: Rowlock,
        name: str,
        *,
        base_url: str,
        token: str | OfCompany | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Sequence[RateLimit] = COURTESY,
        timeout_seconds: float | None = None,
        disabled: str | None = None,
        operations_off: Collection[str] = (),
        scopes_url: str | None = None,
        account: str | OfCompany = "default",
        advice: str | None = None,
        refused: Callable[[Answer], bool] = is_refused,
        limited: Callable[[Answer], float | None] = wait_of,
        spent: Callable[[Answer], float | None] | None = None,
        retry: Backoff = RETRY,
        rest_seconds: tuple[float, float] = (1.0, 30.0),
        concurrency: int | None = None,
        visibility_seconds: float = 600.0,
        rescue_delay_seconds: float = 300.0,
        poll_seconds: float = 120.0,
        cycle_seconds: float | None = None,
        cycle_delay_seconds: float = 30.0,
    ) -> None:
        checked_name(name, "integration")
        if len(name) > _NAME_LENGTH_MAX or ":" in name or "/" in name:
            raise SettingsError(f"integration {name!r}: at most {_NAME_LENGTH_MAX} characters, and neither : nor /")
        self.name = name
        self.queue = name
        self.base_url = _checked_url(name, base_url)
        self.limits = checked_limits(f"integration {name!r}", limits)
        self.timeout_seconds = timeout_seconds or app.settings.sync_timeout_seconds
        self.disabled = disabled
        self.scopes_url = scopes_url
        self.operations: dict[str, Operation] = {}
        self._app = app
        self.accounts = Accounts(name, account, token)
        self.starters: list[tuple[str, float]] = []
        self._off = frozenset(operations_off)
        self._retry = retry
        self._profile: dict[str, Any] = {
            "concurrency": concurrency or app.settings.sync_concurrency,
            "poll_seconds": poll_seconds,
            "visibility_seconds": visibility_seconds,
            "rescue_delay_seconds": rescue_delay_seconds,
        }
        self._lines = ClientPool(
            lambda: app.engine,
            name,
            self.limits,
            Meaning(refused, limited, spent, rest_seconds, advice or _advice(name, scopes_url)),
            Address(self.base_url, dict(headers or {}), self.timeout_seconds),
        )
        self._work = Dispatcher(self, lambda: app.engine, self._lines)
        if cycle_seconds is not None and disabled is None:
            self._look_every(cycle_seconds, cycle_delay_seconds)

    # -- declarations ------------------------------------------------------------------------------

    def operation(
        self,
        name: str,
        *,
        key: Template | None = None,
        about: Template | None = None,
        batch: int | None = None,
        properties: Callable[..., Mapping[str, Any]] | None = None,
        priority: int = 5,
        retry: Backoff | None = None,
        deadline_seconds: float = _DEADLINE_SECONDS,
    ) -> Callable[[F], F]:
        """Declare an operation: `async def create_contact(call: Call, email: str, firstName: str | None = None)`.

        The parameters after the call are the payload's fields. `key` is a template such as "member_creation_{email}":
        only one job per key waits or runs, with the newest payload. `about` is a template of the subject: two jobs with
        the same subject never call the service at the same time. With `batch=100` the function takes
        `(calls: Calls, updates: list[Update])` and returns one result or exception per update, or None. The payload's
        fields are then the parameters of `properties`, which returns the properties to write (default: the payload has
        an object `properties`, and any other field that `about` needs).
        """
        type_name = f"{self.name}.{checked_name(name, 'operation')}"
        if name in self.operations:
            raise SettingsError(f"operation {type_name!r} is declared twice; names must be different")
        _checked_priority(type_name, priority, SettingsError)
        if batch is not None and about is None:
            raise SettingsError(f"operation {type_name!r}: batch= needs about=, to know which jobs to merge")
        locals_ = sys._getframe(1).f_locals  # annotations of a nested function may name types local to its parent

        def register(function: F) -> F:
            arguments, defaults, names, to_properties = compiled(type_name, function, locals_, properties, batch)
            check_template(f"operation {type_name!r}: its key", key, names)
            check_template(f"operation {type_name!r}: its about", about, names)
            self.add(
                Operation(
                    name,
                    type_name,
                    self.queue if batch is None else type_name,
                    function,
                    arguments,
                    defaults,
                    key,
                    about,
                    priority,
                    batch,
                    to_properties,
                    name not in self._off,
                    names,
                ),
                retry or self._retry,
                deadline_seconds,
            )
            return function

        return register

    def add(self, operation: Operation, retry: Backoff, deadline_seconds: float) -> None:
        """Register an operation and its job type."""

        async def one(job: Job, /, **fields: Any) -> Any:
            return await self._work.one(operation, job, fields)

        async def many(jobs: list[Job]) -> list[Any]:
            return await self._work.many(operation, jobs)

        def unique_key(payload: Mapping[str, Any]) -> str:
            text = encode(dict(payload), operation.type, self._app.settings.payload_bytes_max)
            return operation.unique_key(operation.fields(text)) or ""

        unique = Unique.none()  # the same write may be needed again after a different one
        if operation.key is not None:
            unique = Unique("while_active", None, OnConflict.RETURN_EXISTING, unique_key, newest_wins=True)
        self._app.registry.add(
            JobType(
                operation.type,
                one if operation.batch is None else many,
                True,
                operation.arguments,
                operation.queue,
                operation.priority,
                retry,
                int(self._profile["visibility_seconds"] * 1000),
                unique=unique,
                limit=self._limit_key(None),
                deadline_seconds=deadline_seconds,
                batch=operation.batch,
                permanent=PERMANENT,
            )
        )
        self.operations[operation.name] = operation

    def on_start(self, function: F, *, delay_seconds: float = 15.0) -> F:
        """Register a function to run once in the fleet, `delay_seconds` after start-up: `async def ensure(call: Call)`.

        The function must be idempotent.
        """
        self.operation("ensure", about="ensure", priority=PRIORITIES[0])(function)
        self.starters.append((f"{self.name}.ensure", delay_seconds))
        return function

    def _look_every(self, seconds: float, delay_seconds: float) -> None:
        """Schedule a job that returns the integration's counts and wakes the workers of its queues again."""
        type_name = f"{self.name}.cycle"

        async def cycle(job: Job) -> dict[str, int]:
            for queue in self.queues:
                await self._app.store.wake(queue)
            return await self.stats()

        self._app.job(type_name, retry=Backoff(1), unique=Unique.while_active(key=type_name))(cycle)
        self._app.schedule(
            self.name, type_name, every_seconds=seconds, start_delay_seconds=delay_seconds, missed="skip"
        )

    @property
    def queues(self) -> tuple[str, ...]:
        """Its queues: one with the integration's name, and one for each batched operation."""
        return tuple(dict.fromkeys([self.queue, *(operation.queue for operation in self.operations.values())]))

    @property
    def profiles(self) -> dict[str, QueueProfile]:
        """Default profiles of its queues. A queue that the application declares overrides them."""
        batches = {operation.queue: operation.batch or 0 for operation in self.operations.values()}
        return {
            # A claim takes at most half of buffer_max: CLAIM_MAX jobs, or one batch per runner.
            queue: QueueProfile(
                queue,
                buffer_max=2 * max(CLAIM_MAX, batches.get(queue, 0) * self._profile["concurrency"]),
                **self._profile,
            )
            for queue in self.queues
        }

    # -- producers ---------------------------------------------------------------------------------

    def operation_named(self, name: str) -> Operation:
        """Return the operation. Raises OperationNotFound, which suggests similar names."""
        found = self.operations.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.operations, n=3)
            known = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(self.operations))}"
            raise OperationNotFound(f"{self.name} has no operation {name!r}; {known}")
        return found

    def options(self, operation: str, *, priority: int | None = None, company_id: str | None = None) -> dict[str, Any]:
        """Return the arguments of `app.enqueue` besides the payload: type_name, priority, limit_key.

        Raises OperationNotFound, IntegrationDisabled, or BadPayload for a priority out of range. The job type has the
        unique policy and checks the payload.
        """
        found = self.operation_named(operation)
        if self.disabled is not None:
            raise IntegrationDisabled(f"{self.name} is disabled: {self.disabled}")
        if priority is not None:
            _checked_priority(found.type, priority, BadPayload)
        return {
            "type_name": found.type,
            "priority": found.priority if priority is None else priority,
            "limit_key": self._limit_key(company_id),
        }

    def _limit_key(self, company_id: str | None) -> str:
        """The key that pauses claims: the account's if it is known before the job runs, else the integration's."""
        unknown = company_id is None and self.accounts.several
        return self.name if unknown else self.accounts.key(company_id)

    async def enqueue(
        self,
        operation: str,
        payload: dict[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay_seconds: float = 0.0,
        company_id: str | None = None,
        max_attempts: int | None = None,
        connection: Any = None,
    ) -> Receipt:
        """Enqueue a job of this operation. If a job with the same key waits or runs, it gets the new payload instead.

        Returns that job then. Raises OperationNotFound, IntegrationDisabled, and the errors of `app.enqueue`.
        """
        return await self._app.enqueue(
            payload=payload,
            delay_seconds=delay_seconds,
            company_id=company_id,
            max_attempts=max_attempts,
            connection=connection,
            **self.options(operation, priority=priority, company_id=company_id),
        )

    async def enqueue_many(
        self,
        operation: str,
        payloads: Iterable[dict[str, Any]],
        *,
        priority: int | None = None,
        company_id: str | None = None,
        connection: Any = None,
        **options: Any,
    ) -> list[Receipt]:
        """Enqueue a job for each payload, all or none."""
        chosen = self.options(operation, priority=priority, company_id=company_id)
        type_name = chosen.pop("type_name")
        return await self._app.enqueue_many(
            ((type_name, payload) for payload in payloads),
            connection=connection,
            company_id=company_id,
            **chosen,
            **options,
        )

    # -- people ------------------------------------------------------------------------------------

    async def stats(self, company_id: str | None = None) -> dict[str, int]:
        """Count its jobs: pending, processing, failed (waiting for a retry), dead, completed in the last 24 hours."""
        return await stats(self._app.store, self, company_id)

    async def monitor(self, company_id: str | None = None) -> dict[str, Any]:
        """Return the counts, latest failures, mean processing time, age of the oldest waiting job, and call budget."""
        return await monitor(self._app.store, self, company_id)

    async def let_go(self) -> None:
        """Close the connections of the running event loop."""
        await self._lines.close()

    def __repr__(self) -> str:
        return f"<Integration {self.name} {self.base_url}{'' if self.disabled is None else ' disabled'}>"


def _checked_url(name: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise SettingsError(f"integration {name!r}: base_url must be http(s)://host[:port][/path], and nothing more")
    return url.rstrip("/")


def _checked_priority(what: str, priority: int, error: type[SettingsError] | type[BadPayload]) -> None:
    low, high = PRIORITIES
    if not low <= priority <= high:
        raise error(f"{what}: priority must be {low} to {high}, lower is sooner; not {priority}")


def _advice(name: str, scopes_url: str | None) -> str:
    where = f" at {scopes_url}" if scopes_url else ""
    return f"check the token and its scopes{where}, then: rowlock dead retry --type '{name}.*'"
