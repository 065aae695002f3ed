"""What schemathesis checks of every answer besides what it knows itself: loaded by its command, not by pytest.

FUZZ_SECRETS  a JSON list of texts that no answer may contain
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import schemathesis

from rowlock.http.problem import MEDIA_TYPE, PROBLEMS

SECRETS: list[str] = json.loads(os.environ["FUZZ_SECRETS"])
_STACK = re.compile(r'"stackTrace":"(?:[^"\\]|\\.)*"')  # that of a handler, which administrators may see
TRACES = ["Traceback (most recent", "site-packages", "/rowlock/web/", "/rowlock/storage/", '.py", line']


@schemathesis.check
def errors_are_problems(ctx: Any, response: Any, case: Any) -> None:
    """Every error is problem+json with a code that is listed."""
    if response.status_code < 400 or response.request.method == "HEAD":
        return
    kinds = response.headers.get("content-type", [])
    assert kinds == [MEDIA_TYPE], f"an error came as {kinds}"
    told = response.json()
    assert told["code"] in PROBLEMS, f"{told['code']} is not listed"
    assert told["status"] == PROBLEMS[told["code"]].status == response.status_code, (
        f"{told} came as {response.status_code}"
    )


@schemathesis.check
def nothing_leaks(ctx: Any, response: Any, case: Any) -> None:
    """No answer has a secret in it, or tells where the code is."""
    text = _STACK.sub("", response.content.decode("utf-8", "replace")) + json.dumps(dict(response.headers))
    if str((case.query or {}).get("raw", "")).lower() in ("true", "1", "yes", "on", "t", "y"):
        return  # an administrator has asked for it
    if case.operation.path == "/api/v1/health" and response.status_code == 200:
        told = response.json()
        told.pop("database")  # where it is, without its password, as `rowlock health` says it
        text = json.dumps(told)
    found = [secret for secret in [*SECRETS, *TRACES] if secret in text]
    assert not found, f"an answer contains {found}"


@schemathesis.check
def every_answer_is_safe(ctx: Any, response: Any, case: Any) -> None:
    """The headers that each must have, and those that none may have."""
    assert response.headers.get("x-content-type-options") == ["nosniff"]
    assert response.headers.get("cache-control")
    assert "server" not in response.headers
