"""Validate one row at a time with pydantic: its values, or all of its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rowlock.imports.check.coerce import coerce
from rowlock.imports.check.model_schema import row_spec
from rowlock.imports.check.reasons import BadCell, of_pydantic
from rowlock.imports.check.stored import stored
from rowlock.imports.fields import Field
from rowlock.imports.read.source import CellKind


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a cell, or with the row as a whole if `field` is None."""

    field: Field | None
    code: str
    reason: str


class Judge:
    """Validates rows: reads cells by the rules for single cells, then calls pydantic."""

    def __init__(self, model: type[BaseModel], fields: Sequence[Field]) -> None:
        self.sees_rows = row_spec(model).rowwise or any(field.opaque for field in fields)  # all go to pydantic
        self._fields = list(fields)
        self._by_name = {field.name: field for field in fields}
        self._validator = model.__pydantic_validator__

    def accept(
        self, texts: Mapping[str, str], kinds: Mapping[str, CellKind], known: Mapping[str, Any]
    ) -> list[Any] | None:
        """Return the values of a row, some of them `known` already; None if `decide` must find out what is wrong."""
        given: dict[str, Any] = dict(known)
        try:
            for name, text in texts.items():
                if name in known:
                    continue
                value = coerce(self._by_name[name], text, kinds.get(name, CellKind.TEXT))
                if value is not None or self._by_name[name].nullable:
                    given[name] = value
            made = self._validator.validate_python(given, by_alias=False, by_name=True)
        except Exception:
            return None  # `decide` meets the same error and reports it
        values, problems = self._stored(made)
        return None if problems else values

    def decide(self, texts: Mapping[str, str], kinds: Mapping[str, CellKind]) -> tuple[list[Any], list[Problem]]:
        """Return the values of a row as a frame holds them, and its problems in the order of its fields."""
        given: dict[str, Any] = {}
        problems: dict[str | None, list[Problem]] = {}
        for name, text in texts.items():
            field = self._by_name[name]
            try:
                value = coerce(field, text, kinds.get(name, CellKind.TEXT))
            except BadCell as bad:
                problems[name] = [Problem(field, bad.code, bad.reason)]
                continue
            if value is not None or field.nullable:
                given[name] = value
        unread = frozenset(problems)
        made: BaseModel | None = None
        try:
            made = self._validator.validate_python(given, by_alias=False, by_name=True)
        except ValidationError as refused:
            for where, problem in self._refused(refused):
                # pydantic did not get unreadable cells: errors that follow from their absence are not the user's.
                if not unread or (where is not None and where not in unread):
                    problems.setdefault(where, []).append(problem)
        except Exception as broken:
            if not unread:
                problems[None] = [_failed(None, broken)]
        if problems or made is None:
            return [], [one for name in (*self._by_name, None) for one in problems.get(name, ())]
        return self._stored(made)

    def _refused(self, refused: ValidationError) -> Iterable[tuple[str | None, Problem]]:
        for error in refused.errors(include_url=False, include_input=False):
            where = error["loc"]
            field = self._by_name.get(str(where[0])) if where else None
            code, reason = of_pydantic(error, secret=field is not None and field.secret)
            if code == "bad_format" and field is not None and field.what:
                reason = f"not {field.what}"
            inside = ".".join(str(part) for part in where[1:]) if field else ""
            told = f"{reason} (at {inside})" if inside else reason
            yield field.name if field else None, Problem(field, code, told)

    def _stored(self, made: BaseModel) -> tuple[list[Any], list[Problem]]:
        values: list[Any] = []
        problems: list[Problem] = []
        for field in self._fields:
            try:
                values.append(stored(field.kind, getattr(made, field.name), field.places, field.zone))
            except (TypeError, ValueError, OverflowError) as broken:
                problems.append(_failed(field, broken))
        return values, problems


def _failed(field: Field | None, broken: Exception) -> Problem:
    detail = type(broken).__name__ if field is None or field.secret else str(broken)
    return Problem(field, "check_failed", f"the importer's validator failed: {detail}")
