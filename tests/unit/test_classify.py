"""Errors: which may pass, which never will, and what is said about them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rowlock import BadPayload, Permanent, Retry, UnknownJobType
from rowlock.jobs.classify import describe, is_permanent


def error_with(**attributes: Any) -> Exception:
    error = Exception("answered")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    "error",
    [
        Permanent("no"),
        BadPayload("bad"),
        UnknownJobType("who"),
        FileNotFoundError("gone"),
        NotADirectoryError("x"),
        IsADirectoryError("x"),
        error_with(response=SimpleNamespace(status_code=401)),
        error_with(response=SimpleNamespace(status_code=403)),
        error_with(response=SimpleNamespace(status=403)),
        error_with(status_code=401),
        error_with(status=403),
        ValueError("code=MISSING_SCOPES, needs crm.objects.contacts.write"),
    ],
    ids=repr,
)
def test_trying_again_cannot_help(error: Exception) -> None:
    assert is_permanent(error)


@pytest.mark.parametrize(
    "error",
    [
        Retry("later"),
        OSError("network"),
        ConnectionResetError(),
        TimeoutError(),
        PermissionError("busy file"),
        error_with(response=SimpleNamespace(status_code=404)),
        error_with(response=SimpleNamespace(status_code=429)),
        error_with(response=SimpleNamespace(status_code=500)),
        error_with(status="401"),
        error_with(response=None),
        error_with(response="401"),
        ValueError("missing scopes"),
    ],
    ids=repr,
)
def test_trying_again_may_help(error: Exception) -> None:
    assert not is_permanent(error)


def test_a_type_may_declare_more() -> None:
    assert is_permanent(KeyError("x"), (KeyError, ZeroDivisionError))
    assert not is_permanent(KeyError("x"), (ZeroDivisionError,))


def test_an_exception_with_attributes_that_raise_is_classified_all_the_same() -> None:
    class Odd(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("no response was read")

        def __str__(self) -> str:
            raise ValueError("no words")

    assert not is_permanent(Odd())
    assert "Odd" in describe(Odd())


def test_an_error_is_one_line_of_kind_and_message() -> None:
    assert describe(ValueError("broken")) == "ValueError: broken"
    assert describe(ValueError()) == "ValueError"
    assert describe(Permanent("no such customer")) == "no such customer"
    assert describe(Permanent()) == "Permanent"
    assert describe(KeyError("to")) == "KeyError: 'to'"
    assert describe(ValueError("a\x00b")) == "ValueError: a\\x00b"
    assert len(describe(ValueError("x" * 1_000_000))) <= 2_000
