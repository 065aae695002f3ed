"""A handler's signature as the schema of its payload."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from rowlock.errors import BadPayload, SettingsError
from rowlock.jobs.signature import compile_arguments


class Point(BaseModel):
    x: int


def test_a_handler_that_takes_the_job_alone_has_no_schema() -> None:
    assert compile_arguments("t", lambda job: None) is None


def test_fields_are_checked_and_converted() -> None:
    def handler(job: Any, point: Point, many: list[Point], n: int = 3) -> None: ...

    arguments = compile_arguments("t", handler)
    assert arguments is not None
    assert arguments('{"point": {"x": 1}, "many": [{"x": 2}]}') == {"point": Point(x=1), "many": [Point(x=2)]}
    with pytest.raises(BadPayload) as refused:
        arguments('{"point": {}, "many": [{"x": 1}, {"x": "a"}], "other": 1}')
    for place in ("t: ", "point.x", "many.1.x", "other"):
        assert place in str(refused.value)


def test_a_default_is_the_handlers_own_and_is_not_checked() -> None:
    def handler(job: Any, n: int = None, *, flag: bool = False) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    arguments = compile_arguments("t", handler)
    assert arguments is not None
    assert arguments("{}") == {}
    assert arguments('{"flag": true}') == {"flag": True}


def test_open_fields_are_checked_against_their_type() -> None:
    def handler(job: Any, **counts: int) -> None: ...

    arguments = compile_arguments("t", handler)
    assert arguments is not None
    assert arguments('{"a": 1}') == {"a": 1}
    with pytest.raises(BadPayload, match="a"):
        arguments('{"a": "many"}')


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "{", "", '{"n": 1'])
def test_what_is_no_object_is_refused(text: str) -> None:
    def handler(job: Any, n: int) -> None: ...

    arguments = compile_arguments("t", handler)
    assert arguments is not None
    with pytest.raises(BadPayload):
        arguments(text)


def test_no_more_than_ten_problems_are_named() -> None:
    def strict(job: Any, n: int) -> None: ...

    arguments = compile_arguments("t", strict)
    assert arguments is not None
    with pytest.raises(BadPayload) as refused:
        arguments("{" + ",".join(f'"f{n}": 1' for n in range(100)) + "}")
    assert str(refused.value).count(";") == 10
    assert str(refused.value).endswith("…")


def test_a_value_is_never_in_the_message() -> None:
    def handler(
        job: Any, n: int, word: Annotated[str, Field(pattern="^[a-z]+$", max_length=3)], key: bytes
    ) -> None: ...

    arguments = compile_arguments("t", handler)
    assert arguments is not None
    with pytest.raises(BadPayload) as refused:
        arguments('{"n": "CANARY", "word": "CANARY", "key": 1, "more": "CANARY"}')
    assert "CANARY" not in str(refused.value)


def test_names_that_python_reserves_for_itself_are_fields_too() -> None:
    def handler(job: Any, self: int, schema: int, model_config: int, _private: int = 1) -> None: ...

    arguments = compile_arguments("t", handler)
    assert arguments is not None
    given = {"self": 1, "schema": 2, "model_config": 3, "_private": 4}
    assert arguments('{"self": 1, "schema": 2, "model_config": 3, "_private": 4}') == given


@pytest.mark.parametrize(
    "handler",
    [lambda: None, lambda *jobs: None, lambda **fields: None, lambda *, job: None],
    ids=["nothing", "*args", "**kwargs", "keyword only"],
)
def test_the_first_parameter_is_the_job(handler: Any) -> None:
    with pytest.raises(SettingsError, match=r"'t'.*first parameter must be the job"):
        compile_arguments("t", handler)


def test_parameters_that_a_payload_cannot_fill_are_refused() -> None:
    def positional(job: Any, to: str, /) -> None: ...

    def star(job: Any, *rest: str) -> None: ...

    for handler in (positional, star):
        with pytest.raises(SettingsError, match="cannot be filled"):
            compile_arguments("t", handler)


def test_types_that_cannot_be_found_or_read_are_refused_when_registered() -> None:
    def unknown(job: Any, when: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def unreadable(job: Any, module: type(sys)) -> None: ...  # type: ignore[valid-type]

    for handler in (unknown, unreadable):
        with pytest.raises(SettingsError, match="'t'"):
            compile_arguments("t", handler)
