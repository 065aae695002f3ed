"""Classification of errors: which are retried, which are permanent, and their reasons."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rowlock import Answer, BadPayload, CallFailed, CallRefused, Permanent, Retry, UnknownJobType
from rowlock.jobs.classify import describe, is_permanent
from rowlock.observe.redaction import Redactor


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
        CallRefused("no"),
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
        CallFailed("POST /things: 400 VALIDATION_ERROR MISSING_SCOPES is no tier"),
        CallFailed("an answer that the integration does not take for a refusal", answer=Answer(403)),
    ],
    ids=repr,
)
def test_trying_again_may_help(error: Exception) -> None:
    assert not is_permanent(error)


def test_a_type_may_declare_more() -> None:
    assert is_permanent(KeyError("x"), (KeyError, ZeroDivisionError))
    assert not is_permanent(KeyError("x"), (ZeroDivisionError,))


class Odd(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("no response was read")

    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_exception_with_attributes_that_raise_is_classified_all_the_same() -> None:
    assert not is_permanent(Odd())
    assert described(Odd()) == "Odd"


def described(error: BaseException) -> str:
    return describe(error, Redactor())


def test_an_error_is_its_kind_and_message() -> None:
    assert described(ValueError("broken")) == "ValueError: broken"
    assert described(ValueError()) == "ValueError"
    assert described(Permanent("no such customer")) == "no such customer"
    assert described(Permanent()) == "Permanent"
    assert described(KeyError("to")) == "KeyError: 'to'"
    assert described(ValueError("a\x00b")) == "ValueError: a\\x00b"


def test_a_message_is_redacted_first_and_cut_then() -> None:
    assert len(described(ValueError("x" * 1_000_000))) <= 2_000
    for padding in range(1_900, 2_000):
        assert "S3CRET" not in described(ValueError(f"{'x' * padding} postgresql://app:c4n4ry-S3CRET@db/main"))
