"""An operation: a typed function that writes to a service, and its declared options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.errors import BadPayload, SettingsError
from rowlock.jobs.job import Job
from rowlock.jobs.payload import loads
from rowlock.jobs.signature import Arguments, compile_arguments, fields_of
from rowlock.settings import NAME_LENGTH_MAX

Template = str | Callable[[Mapping[str, Any]], str]
"""A string with {fields} of the payload, or a function of the payload's fields."""

PRIORITIES = (1, 10)
_FIELD = re.compile(r"\{(\w+)(?:\|([^{}]*))?\}")
_MISSING = "none"


@dataclass(frozen=True, slots=True)
class Update:
    """What to write about one subject: the newest value of each property, and the jobs that it is merged from."""

    subject: str
    properties: dict[str, Any]
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class Operation:
    """One declared operation of an integration."""

    name: str
    type: str  # job type
    queue: str
    handler: Callable[..., Any]
    arguments: Arguments | None
    defaults: dict[str, Any]
    key: Template | None
    about: Template | None
    priority: int
    batch: int | None
    properties: Callable[..., Mapping[str, Any]] | None  # for a batch: payload fields -> properties to write
    enabled: bool
    names: frozenset[str] = field(default=frozenset())  # allowed payload fields; empty: any

    def fields(self, payload: str | bytes) -> dict[str, Any]:
        """Return the checked fields of a payload, with defaults for missing ones. Raises BadPayload."""
        if self.arguments is None:
            found = loads(payload)
            return dict(found)
        return self.defaults | self.arguments(payload)

    def unique_key(self, fields: Mapping[str, Any]) -> str | None:
        """Return the key that one job holds while it waits or runs, spaces as underscores; None without `key=`."""
        if self.key is None:
            return None
        return checked_text(f"{self.type}: its key", fill(self.key, fields).replace(" ", "_"))

    def subject(self, fields: Mapping[str, Any]) -> str | None:
        """Return the job's subject, None without `about=`. Jobs with equal subjects never call at the same time."""
        return None if self.about is None else fill(self.about, fields)


def compiled(
    type_name: str,
    function: Callable[..., Any],
    names: Mapping[str, Any],
    properties: Callable[..., Any] | None,
    batch: int | None,
) -> tuple[Arguments | None, dict[str, Any], frozenset[str], Callable[..., Any] | None]:
    """Return the payload checker, defaults and field names from a function's signature, and the `properties` function.

    Raises SettingsError for a function or batch size that does not fit.
    """
    if not inspect.iscoroutinefunction(function):
        raise SettingsError(f"operation {type_name!r}: its function must be `async def`")
    if batch is None:
        if properties is not None:
            raise SettingsError(f"operation {type_name!r}: properties= is for operations with batch=")
        target: Callable[..., Any] = function
    else:
        if not 1 <= batch <= 10_000:
            raise SettingsError(f"operation {type_name!r}: batch must be 1 to 10000, not {batch}")
        if len(inspect.signature(function).parameters) != 2:
            raise SettingsError(
                f"operation {type_name!r}: with batch= its function takes the calls and the list of updates"
            )
        properties = properties or _given
        target = _after_a_first(properties)
    arguments = compile_arguments(type_name, target, names)
    parameters = list(inspect.signature(target).parameters.values())[1:]
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    return arguments, defaults, frozenset(fields_of(target) or ()), properties


def _given(properties: dict[str, Any], **about: Any) -> dict[str, Any]:
    return properties


def _after_a_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with an extra first parameter, as job handlers have."""

    def shifted(_: Any, **fields: Any) -> Any:
        return function(**fields)

    own = inspect.signature(function)
    first = inspect.Parameter("_job", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shifted.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]  # inspect reads it
    shifted.__annotations__ = dict(getattr(function, "__annotations__", {}))
    shifted.__wrapped__ = function  # type: ignore[attr-defined]  # annotations refer to names of its module
    shifted.__name__ = getattr(function, "__name__", "properties")
    return shifted


def check_template(what: str, template: Template | None, names: frozenset[str]) -> None:
    """Raise SettingsError if the template names a field that the payload cannot have."""
    if isinstance(template, str) and names:
        unknown = {name for name, _ in _FIELD.findall(template)} - names
        if unknown:
            raise SettingsError(
                f"{what} names {', '.join(sorted(unknown))}, which the function does not take; "
                f"it takes {', '.join(sorted(names))}"
            )


def fill(template: Template, fields: Mapping[str, Any]) -> str:
    """Fill in the template. A missing field becomes the default of `{field|default}`, or "none"."""
    if callable(template):
        return template(fields)

    def value(found: re.Match[str]) -> str:
        given = fields.get(found[1])
        return (_MISSING if found[2] is None else found[2]) if given is None else str(given)

    return _FIELD.sub(value, template)


def checked_text(what: str, text: object) -> str:
    if not isinstance(text, str) or not 0 < len(text) <= NAME_LENGTH_MAX or not text.isprintable():
        raise BadPayload(f"{what} must be 1 to {NAME_LENGTH_MAX} printable characters")
    return text
