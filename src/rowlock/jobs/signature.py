"""A handler's signature as the schema of its payload, compiled once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NotRequired, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rowlock.errors import BadPayload, SettingsError

# Error types whose message may contain the value.
_TELLTALE = {
    "value_error": "rejected by a validator",
    "assertion_error": "rejected by a validator",
    "union_tag_invalid": "has none of the expected types",
}

Arguments = Callable[[str | bytes], dict[str, Any]]


def compile_arguments(
    name: str, handler: Callable[..., Any], names: Mapping[str, Any] | None = None
) -> Arguments | None:
    """Return a function from payload text to the handler's keyword arguments; None if the handler takes only the job.

    The function raises BadPayload, which names the unknown, missing and ill-typed fields. `names` are local names that
    the annotations of a handler defined inside a function may use. Raises SettingsError for an unusable signature.
    """
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise SettingsError(
            f"job {name!r}: the handler's first parameter must be the job: `async def {_name(handler)}(job, ...)`"
        )
    fields = parameters[1:]
    if not fields:
        return None
    try:
        target = handler.func if isinstance(handler, partial) else handler
        hints = get_type_hints(target, localns=dict(names or {}), include_extras=True)
    except NameError as error:
        raise SettingsError(f"job {name!r}: a type in the handler's signature cannot be found: {error}") from error
    schema: dict[str, Any] = {}
    extra: Any = "forbid"
    rest: TypeAdapter[dict[str, Any]] | None = None
    for field in fields:
        if field.kind is inspect.Parameter.VAR_KEYWORD:
            extra = "allow"
            values: Any = hints.get(field.name, Any)
            rest = TypeAdapter(dict[str, values])
            continue
        if field.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise SettingsError(
                f"job {name!r}: parameter {field.name!r} cannot be filled from a payload; give it a name"
            )
        hint = hints.get(field.name, Any)
        if field.default is inspect.Parameter.empty:
            schema[field.name] = hint
        else:
            schema[field.name] = NotRequired[Annotated[hint, Field()]]
    make: Any = TypedDict  # the functional form: the names are known only at run time
    typed = make(f"{_name(handler)}_arguments", schema)
    typed.__pydantic_config__ = ConfigDict(extra=extra)
    try:
        validate = TypeAdapter(typed).validator.validate_json
    except Exception as error:
        raise SettingsError(f"job {name!r}: its signature cannot be read from JSON: {error}") from error

    taken = parameters[0].name if extra == "allow" else None

    def arguments(text: str | bytes) -> dict[str, Any]:
        try:
            given: dict[str, Any] = validate(text)
            if rest is not None:
                given |= rest.validate_python({name: value for name, value in given.items() if name not in schema})
        except ValidationError as error:
            raise BadPayload(f"{name}: {_problems(error)}") from None
        if taken is not None and taken in given:
            raise BadPayload(f"{name}: {taken}: this name is reserved for the handler's first parameter, the job")
        return given

    return arguments


def fields_of(handler: Callable[..., Any]) -> set[str] | None:
    """Return the payload fields that a handler takes; None if it takes any."""
    fields = list(inspect.signature(handler).parameters.values())[1:]
    if any(field.kind is inspect.Parameter.VAR_KEYWORD for field in fields):
        return None
    return {field.name for field in fields}


def _problems(error: ValidationError) -> str:
    """Return each problem with its field, never with the value, which may be a secret."""
    found = []
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        place = ".".join(map(str, item["loc"]))
        reason = _TELLTALE.get(item["type"], item["msg"])
        found.append(f"{place}: {reason}" if place else reason)
    return "; ".join(found[:10]) + ("; …" if len(found) > 10 else "")


def _name(handler: Callable[..., Any]) -> str:
    return getattr(handler, "__name__", "handler")
