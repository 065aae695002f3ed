"""The outcome of each record in HubSpot's response to a batch."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import Answer
from rowlock.errors import CallFailed, CallRefused, CallUncertain
from rowlock.sync.hubspot import Record, Upsert
from rowlock.sync.hubspot.batch import entries_of

ADA, BOB, EVE = (Upsert(f"{name}@example.com", {"city": "Rome"}) for name in ("ada", "bob", "eve"))


def result(record_id: str, trace: str | None = None, email: str | None = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"id": record_id, "properties": {"email": email} if email else {}, **more}
    return found if trace is None else found | {"objectWriteTraceId": trace}


def error(category: str, message: str, **context: list[str]) -> dict[str, Any]:
    return {"status": "error", "category": category, "message": message, "context": context}


def entries(*results: Any, errors: list[Any] | None = None) -> list[Any]:
    body = {"status": "COMPLETE", "results": list(results), "errors": errors or []}
    return list(entries_of(Answer(207 if errors else 200, body), "contacts", "email", [ADA, BOB, EVE]))


def test_results_are_told_apart_by_our_numbers_in_whatever_order_they_come() -> None:
    told = entries(result("3", "2"), result("1", "0", new=True), result("2", "1"))
    assert [(each.id, each.created) for each in told] == [("1", True), ("2", False), ("3", False)]


def test_or_by_their_key() -> None:
    told = entries(result("2", email="bob@example.com"), result("3", email="eve@example.com"))
    assert [type(each) for each in told] == [CallUncertain, Record, Record]
    assert [each.id for each in told[1:]] == ["2", "3"]


def test_when_all_is_done_and_nobody_is_named_they_are_in_our_order() -> None:
    assert [each.id for each in entries(result("1"), result("3", "2"), result("2"))] == ["1", "2", "3"]
    assert [type(each) for each in entries(result("1"), result("2"))] == [CallUncertain] * 3


@pytest.mark.parametrize("context", [{"objectWriteTraceId": ["1"]}, {"ids": ["bob@example.com"]}])
def test_an_error_is_of_the_record_that_it_names(context: dict[str, list[str]]) -> None:
    told = entries(
        result("1", "0"), result("3", "2"), errors=[error("OBJECT_NOT_FOUND", "Bob is not there", **context)]
    )
    assert [type(each) for each in told] == [Record, CallFailed, Record]
    assert (told[1].status, told[1].category) == (404, "OBJECT_NOT_FOUND")
    assert "Bob is not there" in str(told[1])


def test_an_error_that_names_nobody_is_of_those_of_whom_nothing_else_is_said() -> None:
    told = entries(result("1", "0"), errors=[error("VALIDATION_ERROR", "something is wrong")])
    assert [type(each) for each in told] == [Record, CallFailed, CallFailed]


def test_a_record_that_is_left_out_without_a_word_is_uncertain() -> None:
    assert [type(each) for each in entries(result("1", "0"))] == [Record, CallUncertain, CallUncertain]


def test_a_scope_that_is_missing_for_one_record_is_refused() -> None:
    told = entries(errors=[error("MISSING_SCOPES", "no", objectWriteTraceId=["0"])])
    assert [type(each) for each in told] == [CallRefused, CallUncertain, CallUncertain]


def test_what_it_says_of_a_record_is_told_without_our_credentials() -> None:
    body = {"results": [], "errors": [{"error": "x" * 90 + "my-token", "message": "y" * 295 + "my-token"}]}
    (told,) = entries_of(Answer(207, body), "contacts", "email", [ADA], lambda text: text.replace("my-token", "-"))
    assert isinstance(told, CallFailed)
    assert "my-t" not in f"{told} {told.category} {told.answer}"


@pytest.mark.parametrize("trace", ["7", "-1", "x", "²", "0000", ""])
def test_a_number_that_we_did_not_give_is_nobody_s(trace: str) -> None:
    assert [type(each) for each in entries(result("1", trace))] == [CallUncertain] * 3


@pytest.mark.parametrize(
    "body", [None, [], {}, {"results": None}, {"results": "none"}, {"results": [1]}, {"results": [{"id": 5}]}]
)
def test_an_answer_of_another_shape_is_uncertain(body: Any) -> None:
    with pytest.raises(CallUncertain):
        entries_of(Answer(200, body), "contacts", "email", [ADA])


@pytest.mark.parametrize("errors", [[None], ["text"], [{"context": None}], [{"context": {"ids": 5}}], [{}]])
def test_errors_of_another_shape_are_still_errors(errors: list[Any]) -> None:
    told = entries(result("1", "0"), errors=errors)
    assert isinstance(told[0], Record)
    assert {type(each) for each in told[1:]} == {CallFailed}
