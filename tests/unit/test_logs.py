"""Log lines: JSON for programs, text for people, no secrets in either."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from rowlock.observe import logs
from rowlock.observe.redaction import Redactor

CANARY = "c4n4ry-S3CRET"


@pytest.fixture(autouse=True)
def defaults_afterwards() -> Iterator[None]:
    yield
    logs.reset()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().split("\n") if line]


def configured(level: str = "info", style: str = "json", redact: Redactor | None = None) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, style, redact, stream)
    return stream


def test_a_line_is_one_json_object_with_time_level_and_what_is_bound() -> None:
    stream = configured()
    logs.get(worker="w1").info("job.claimed", count=2, jobs=["a", "b"])
    (line,) = lines(stream)
    when = datetime.fromisoformat(line.pop("timestamp"))
    assert abs((datetime.now(UTC) - when).total_seconds()) < 60
    assert line == {"event": "job.claimed", "level": "info", "worker": "w1", "count": 2, "jobs": ["a", "b"]}


def test_a_line_break_in_a_value_does_not_break_the_line() -> None:
    stream = configured()
    logs.get().info("job.failed", reason='first\nsecond "quoted" \x00 \u2028')
    assert stream.getvalue().count("\n") == 1
    assert lines(stream)[0]["reason"].startswith("first\nsecond")


def test_levels_below_the_one_asked_for_are_not_written() -> None:
    stream = configured("warning")
    log = logs.get()
    log.debug("no")
    log.info("no")
    log.warning("yes")
    log.error("yes")
    assert [line["level"] for line in lines(stream)] == ["warning", "error"]


def test_auto_is_json_unless_a_terminal_looks_on() -> None:
    stream = configured(style="auto")
    logs.get().info("job.claimed")
    assert lines(stream)[0]["event"] == "job.claimed"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    logs.configure("info", "auto", stream=terminal)
    logs.get().info("job.claimed", jobs=[f"id-{n}" for n in range(100)])
    assert "job.claimed" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    assert "id-99" not in terminal.getvalue()
    assert "95 more" in terminal.getvalue()


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_value_leaves_unredacted(style: str) -> None:
    stream = configured("debug", style)
    log = logs.get(api_key=CANARY)
    log.info("bound")
    log.info("named", password=CANARY, Authorization=f"Bearer {CANARY}")
    log.info("inside", reason=f"password={CANARY}", url=f"x://u:{CANARY}@h")
    log.info("nested", payload={"token": CANARY, "list": [{"secret": CANARY}]}, pair=("a", f"key={CANARY}"))
    log.info(f"in the event itself: password={CANARY}")
    log.info("an exception", error=ValueError(f"password={CANARY}"))
    try:
        raise ValueError(f"password={CANARY}")
    except ValueError as error:
        log.debug("traced", exc_info=error)
        log.debug("traced", exc_info=True)
    assert "S3CRET" not in stream.getvalue()
    assert stream.getvalue().count("REDACTED") >= 8


def test_the_words_are_those_of_the_application() -> None:
    stream = configured(redact=Redactor(["iban"]))
    logs.get().info("paid", reason=f"iban={CANARY} token=shown")
    assert lines(stream)[0]["reason"] == "iban=[REDACTED] token=shown"


@pytest.mark.parametrize("value", [object(), {1: 2}, {"x": {1, 2}}, "\ud800", ["\ud800"], b"x", 2**80, float("nan")])
@pytest.mark.parametrize("style", ["json", "text"])
def test_no_value_can_stop_a_line_from_being_written(style: str, value: Any) -> None:
    stream = configured(style=style)
    logs.get().info("odd", value=value)
    assert "odd" in stream.getvalue()
    stream.getvalue().encode()


@pytest.mark.parametrize(
    ("number", "level"), [(25, "info"), (21, "info"), (35, "warning"), (45, "error"), (60, "critical"), (15, "debug")]
)
def test_a_level_of_the_users_own_is_written_as_the_nearest_below(
    number: int, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = configured("debug")
    logs.bridge()
    logging.getLogger("shop").log(number, f"saved token={CANARY}")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("saved token=[REDACTED]", level, "shop")
    assert capsys.readouterr().err == ""


def test_a_record_that_cannot_be_formatted_is_one_line_without_its_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = configured()
    log = logging.Logger("shop")  # without pytest's handler, which raises
    log.addHandler(logs._bridge)
    log.info("saved %s by %s", CANARY)
    log.info(f"token={CANARY} %d", "x")
    for line in lines(stream):
        assert (line["event"], line["level"], line["logger"]) == ("log.malformed", "error", "shop")
        assert line["at"].startswith(__file__)
        assert line["error"] == "TypeError"
    assert len(lines(stream)) == 2
    assert "S3CRET" not in stream.getvalue() + capsys.readouterr().err


def test_a_stream_that_takes_no_line_raises_nothing_into_the_code_that_logs(capsys: pytest.CaptureFixture[str]) -> None:
    configured().close()
    logs.bridge()
    logging.getLogger("shop").info(f"token={CANARY}")
    assert "S3CRET" not in capsys.readouterr().err
