"""An integration: a service, its credential, its limits, and the operations that write to it."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from rowlock.errors import (
    BadPayload,
    CallRefused,
    IntegrationDisabled,
    OperationNotFound,
    SettingsError,
    Snooze,
)
from rowlock.jobs.job import Job
from rowlock.jobs.payload import encode
from rowlock.jobs.policy import Backoff, QueueProfile, Unique
from rowlock.jobs.registry import JobType, checked_name
from rowlock.observe import logs
from rowlock.settings import Settings
from rowlock.storage.records import Receipt
from rowlock.sync.allow import COURTESY, Allow, checked_limits, keys_of
from rowlock.sync.alone import Alone
from rowlock.sync.answer import Answer, is_refused, wait_of
from rowlock.sync.batch import Batch, Wish
from rowlock.sync.line import Line, Meaning
from rowlock.sync.monitor import monitor, stats
from rowlock.sync.operation import PRIORITIES, Operation, Template, check_template, compiled
from rowlock.sync.single import work_one
from rowlock.sync.wire import Wire

if TYPE_CHECKING:
    from rowlock.app import Rowlock

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
OfCompany = Callable[[str | None], str]

RETRY = Backoff(max_attempts=6, base_seconds=60.0, factor=2.0, max_seconds=3_600.0)
VISIBILITY_SECONDS = 600.0
RESCUE_DELAY_SECONDS = 300.0
POLL_SECONDS = 120.0
CLAIM_MAX = 20
_DEADLINE_SECONDS = 540.0
_DISABLED_SECONDS = 60.0
_NAME_LENGTH_MAX = 60


class Integration:
    """A service that operations write to; made by `app.integration(...)`."""

    def __init__(
        self,
        app: Rowlock,
        name: str,
        *,
        base_url: str,
        token: str | OfCompany | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Sequence[Allow] = COURTESY,
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
        self._token = token
        self._account = account
        self._headers = dict(headers or {})
        self._off = frozenset(operations_off)
        self._retry = retry
        self._meaning = Meaning(refused, limited, spent, advice or _advice(name, scopes_url))
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lines] = WeakKeyDictionary()
        self.starters: list[tuple[str, float]] = []
        if isinstance(token, str):
            _checked_token(name, token)

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

        The parameters after the call are the payload's fields. `key` is a text such as "member_creation_{email}": of
        jobs with the same one, one waits or runs. `about` says what it writes to: jobs about the same never call at the
        same time. With `batch=100` the function takes `(calls: Calls, updates: list[Update])`, and returns one result
        or exception per update; the payload's fields are then the parameters of `properties`, which returns what to
        write (or, without it, the fields of `about` and an object `properties`).
        """
        type_name = f"{self.name}.{checked_name(name, 'operation')}"
        if name in self.operations:
            raise SettingsError(f"operation {type_name!r} is declared twice; names must be different")
        _checked_priority(type_name, priority, SettingsError)
        if batch is not None and about is None:
            raise SettingsError(f"operation {type_name!r}: batch= needs about=, to know which jobs to merge")
        locals_ = sys._getframe(1).f_locals  # a function inside a function may name types that are local to it

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
        """Make an operation known, and its jobs."""

        async def one(job: Job, /, **fields: Any) -> Any:
            return await self._work_one(operation, job, fields)

        async def many(jobs: list[Job]) -> list[Any]:
            return await self._work_many(operation, jobs)

        def unique_key(payload: Mapping[str, Any]) -> str:
            text = encode(dict(payload), operation.type, self._app.settings.payload_bytes_max)
            return operation.unique_key(operation.fields(text)) or ""

        unique = None
        if operation.key is not None:
            unique = Unique.while_active(key=unique_key, on_conflict="return_existing")
        self._app.registry.add(
            JobType(
                operation.type,
                one if operation.batch is None else many,
                True,
                operation.arguments,
                operation.queue,
                operation.priority,
                retry,
                int(VISIBILITY_SECONDS * 1000),
                unique=unique,
                limit=self.name,
                deadline_seconds=deadline_seconds,
                batch=operation.batch,
                permanent=(CallRefused,),
            )
        )
        self.operations[operation.name] = operation

    def on_start(self, function: F, *, delay_seconds: float = 15.0) -> F:
        """Have this done, once in the fleet, some seconds after a worker starts: `async def ensure(call: Call)`.

        It must do no harm when it is done again.
        """
        self.operation("ensure", about="ensure", priority=PRIORITIES[0])(function)
        self.starters.append((f"{self.name}.ensure", delay_seconds))
        return function

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of its jobs: one of its own name, and one for each operation that is done in batches."""
        return tuple(dict.fromkeys([self.queue, *(operation.queue for operation in self.operations.values())]))

    def profiles(self, settings: Settings) -> dict[str, QueueProfile]:
        """How workers treat its queues, unless they are declared otherwise."""
        return {
            queue: QueueProfile(
                queue,
                concurrency=settings.sync_concurrency,
                poll_seconds=POLL_SECONDS,
                visibility_seconds=VISIBILITY_SECONDS,
                rescue_delay_seconds=RESCUE_DELAY_SECONDS,
                buffer_max=2 * CLAIM_MAX,  # a claim takes half of it at most
            )
            for queue in self.queues
        }

    # -- producers ---------------------------------------------------------------------------------

    def operation_named(self, name: str) -> Operation:
        """The operation; raises OperationNotFound, which suggests the nearest names."""
        found = self.operations.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self.operations, n=3)
            known = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(self.operations))}"
            raise OperationNotFound(f"{self.name} has no operation {name!r}; {known}")
        return found

    def options(self, operation: str, *, priority: int | None = None, company_id: str | None = None) -> dict[str, Any]:
        """What `app.enqueue` is to be told besides the payload: type, priority, limit_key; raises where it may not be.

        The type itself says how it is unique, and checks the payload.
        """
        found = self.operation_named(operation)
        if self.disabled is not None:
            raise IntegrationDisabled(f"{self.name} is disabled: {self.disabled}")
        if priority is not None:
            _checked_priority(found.type, priority, BadPayload)
        return {
            "type_name": found.type,
            "priority": found.priority if priority is None else priority,
            "limit_key": self.account_key(company_id),
        }

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
        """Record a job of this operation; of jobs with the same key the one that is there is the answer.

        Raises OperationNotFound, IntegrationDisabled, and what `app.enqueue` raises.
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
        """Record a job for each payload, all or none."""
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
        """How many of its jobs are pending, processing, failed (waiting for a retry), dead, completed in 24 hours."""
        return await stats(self._app.store, self, company_id)

    async def monitor(self, company_id: str | None = None) -> dict[str, Any]:
        """The counts, the latest failures, the mean time of a job, how long the oldest waits, and the call budget."""
        return await monitor(self._app.store, self, company_id)

    # -- work --------------------------------------------------------------------------------------

    def account_key(self, company_id: str | None) -> str:
        """Whose limits the calls for a company count for."""
        account = self._account(company_id) if callable(self._account) else self._account
        return checked_name(f"{self.name}:{account}", "account")

    async def _work_one(self, operation: Operation, job: Job, fields: dict[str, Any]) -> Any:
        if (end := self._not_now(operation, [job])) is not None:
            if isinstance(end, BaseException):
                raise end
            return end
        leased = job._context.leased
        line = self._line(job.company_id, leased)
        return await work_one(operation, job, fields, line, self._app.store if leased else None)

    async def _work_many(self, operation: Operation, jobs: list[Job]) -> list[Any]:
        if (end := self._not_now(operation, jobs)) is not None:
            return [end] * len(jobs)
        entries: dict[str, Any] = {}
        accounts: dict[tuple[str | None, bool], list[Wish]] = {}
        for job in jobs:
            try:
                fields = operation.fields(job._claimed.payload)
                subject = operation.subject(fields)
                assert operation.properties is not None
                assert subject is not None
                wish = Wish(job, subject, dict(operation.properties(**fields)))
                account = (self._company(job), job._context.leased)
            except Exception as error:  # of this job alone
                entries[job.id] = error
            else:
                accounts.setdefault(account, []).append(wish)
        for (company_id, leased), wishes in accounts.items():
            line = self._line(company_id, leased)
            entries |= await Batch(operation, wishes, line, self._app.store if leased else None).work()
        return [entries[job.id] for job in jobs]

    def _company(self, job: Job) -> str | None:
        """By which the account is chosen; the same for all where there is only one."""
        return job.company_id if callable(self._account) or callable(self._token) else None

    def _not_now(self, operation: Operation, jobs: Sequence[Job]) -> Any:
        """How the attempt ends without a call, where the integration or the operation is off; else None."""
        if self.disabled is not None:
            return Snooze(_DISABLED_SECONDS, f"{self.name} is disabled: {self.disabled}")
        if not operation.enabled:
            reason = f"{operation.name} is switched off"
            logs.get().info("sync.skipped", type=operation.type, jobs=[job.id for job in jobs], reason=reason)
            return {"skipped": True, "reason": reason}
        return None

    def _line(self, company_id: str | None, leased: bool) -> Line:
        """The line of the company's account, for the running event loop."""
        loop = asyncio.get_running_loop()
        lines = self._lines.get(loop)
        if lines is None:
            lines = self._lines[loop] = _Lines(self)
        token = self._token(company_id) if callable(self._token) else self._token
        if token is not None:
            _checked_token(self.name, token)
        return lines.get(self.account_key(company_id), token, leased)

    async def let_go(self) -> None:
        """End what this event loop has begun."""
        lines = self._lines.pop(asyncio.get_running_loop(), None)
        if lines is not None:
            await lines.close()

    def __repr__(self) -> str:
        return f"<Integration {self.name} {self.base_url}{'' if self.disabled is None else ' disabled'}>"


class _Lines:
    """The lines of one integration in one event loop, which share connections."""

    def __init__(self, hub: Integration) -> None:
        settings = hub._app.settings
        connections = settings.sync_concurrency * max(1, len(hub.queues)) + 4
        self._hub = hub
        self._wire = Wire(hub.base_url, hub._headers, hub.timeout_seconds, connections)
        self._alone = Alone()
        self._lines: dict[tuple[str, str | None, bool], Line] = {}

    def get(self, key: str, token: str | None, leased: bool) -> Line:
        found = self._lines.get((key, token, leased))
        if found is None:
            hub = self._hub
            engine = hub._app.engine
            everyone = keys_of(key, [limit for limit in hub.limits if limit.group is None])
            groups = {limit.group for limit in hub.limits}
            limits = {
                group: everyone + keys_of(key, [limit for limit in hub.limits if limit.group == group and group])
                for group in groups
            }
            found = self._lines[key, token, leased] = Line(
                hub.name,
                key,
                token,
                self._wire,
                engine.store if leased else self._alone,
                limits,
                hub._meaning,
                hub.timeout_seconds,
                engine.measures,
                logs.get(),
            )
        return found

    async def close(self) -> None:
        for line in self._lines.values():
            await line.close()
        await self._wire.close()


def _checked_url(name: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise SettingsError(f"integration {name!r}: base_url must be http(s)://host[:port][/path], and nothing more")
    return url.rstrip("/")


def _checked_token(name: str, token: str) -> None:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"integration {name!r}: its token must be printable characters without spaces")


def _checked_priority(what: str, priority: int, error: type[SettingsError] | type[BadPayload]) -> None:
    low, high = PRIORITIES
    if not low <= priority <= high:
        raise error(f"{what}: priority must be {low} to {high}, lower is sooner; not {priority}")


def _advice(name: str, scopes_url: str | None) -> str:
    where = f" at {scopes_url}" if scopes_url else ""
    return f"check the token and its scopes{where}, then: rowlock dead retry --type '{name}.*'"
