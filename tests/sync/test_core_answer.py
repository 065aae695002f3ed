"""The meaning of responses, by default and with a connector's own classification."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import Answer
from rowlock.sync.response import is_refused, wait_of

DATE = {"date": "Mon, 16 Nov 2026 10:00:00 GMT"}


@pytest.mark.parametrize(
    ("status", "body", "headers", "wait"),
    [
        (429, None, {}, 0.0),
        (429, None, {"retry-after": "7"}, 7.0),
        (429, None, {"retry-after": "0.5"}, 0.5),
        (429, None, {"retry-after": "Mon, 16 Nov 2026 10:00:20 GMT"} | DATE, 20.0),
        (429, None, {"retry-after": "Mon, 16 Nov 2026 09:00:00 GMT"} | DATE, 0.0),
        (429, None, {"retry-after": "Mon, 16 Nov 2026 10:00:20 GMT", "date": "yesterday"}, 0.0),
        (429, None, {"retry-after": "-3"}, 0.0),
        (429, None, {"retry-after": "soon"}, 0.0),
        (429, None, {"retry-after": "٣"}, 3.0),
        (429, None, {"retry-after": "Mon, 99 Foo 2026"}, 0.0),
        (400, {"category": "RATELIMIT_EXCEEDED"}, {"retry-after": "2"}, 2.0),
        (403, {"errorType": "RATE_LIMIT"}, {}, 0.0),
        (400, {"category": "RATE_LIMITS"}, {}, 0.0),
        (400, {"policyName": "RATE_LIMIT"}, {}, 0.0),
        (400, {"message": "RATE_LIMIT is no tier", "category": "VALIDATION_ERROR"}, {}, None),
        (400, {"error": "RATE_LIMIT"}, {}, None),
        (400, {"category": "NO_RATE_LIMIT"}, {}, None),
        (400, {"category": ["RATE_LIMIT"]}, {}, None),
        (500, {"message": "no luck"}, {"retry-after": "3"}, None),
        (503, None, {}, None),
        (400, ["RATE_LIMIT"], {}, None),
    ],
)
def test_how_long_to_make_no_call(status: int, body: Any, headers: dict[str, str], wait: float | None) -> None:
    assert wait_of(Answer(status, body, headers)) == wait


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (401, None, True),
        (403, None, True),
        (400, {"category": "MISSING_SCOPES"}, True),
        (400, {"message": "MISSING_SCOPES is no tier", "category": "VALIDATION_ERROR"}, False),
        (400, {"error": "MISSING_SCOPES"}, False),
        (400, {"category": "VALIDATION_ERROR"}, False),
        (500, None, False),
    ],
)
def test_what_is_refused(status: int, body: Any, refused: bool) -> None:
    assert is_refused(Answer(status, body)) is refused


def test_what_a_service_says_is_found_and_short() -> None:
    answer = Answer(400, {"errorType": "E", "message": "a\n  b" + "c" * 500}, {"x-request-id": "r" * 200})
    assert (answer.category, len(answer.message), answer.message[:4]) == ("E", 300, "a bc")
    assert answer.request_id == "r" * 100
    assert Answer(400, {"error": "e" * 500}).category == "e" * 100
    assert Answer(502, None, {}, "<html>oh</html>").message == "<html>oh</html>"
    assert (Answer(400, {"message": 5}).message, Answer(400, [1]).category) == ("", None)
