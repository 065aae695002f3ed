"""Every JSON answer is the one in `snapshots/`, and every route and command has one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer.main

from rowlock.cli import app as command_line
from unit.test_cli_docs import commands
from web.json_snapshots import COMMAND, FOLDER, every, text_of

WITHOUT_ANSWER = {"rowlock worker"}  # which prints its log


@pytest.fixture(scope="module")
async def taken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return await every(tmp_path_factory.mktemp("snapshots"))


@pytest.mark.parametrize("name", ["http", "events", "cli", "openapi"])
async def test_the_answers_are_those_of_the_snapshots(name: str, taken: dict[str, dict[str, Any]]) -> None:
    pinned = json.loads((FOLDER / f"{name}.json").read_text())
    for case, answer in taken[name].items():
        assert answer == pinned.get(case), f"{case}: if this is intended, run `{COMMAND}`"
    assert text_of(taken[name]) == text_of(pinned), f"if this is intended, run `{COMMAND}`"


def test_every_route_has_an_answer() -> None:
    answers = json.loads((FOLDER / "http.json").read_text())
    routes = json.loads((FOLDER / "openapi.json").read_text())["paths"]
    wanted = {f"{method.upper()} {path}" for path, methods in routes.items() for method in methods}
    assert wanted - {" ".join(name.split()[:2]) for name in answers} == {"GET /api/v1/events", "GET /openapi.json"}
    assert set(json.loads((FOLDER / "events.json").read_text())) == {"job", "import", "queue"}


def test_every_command_has_an_answer() -> None:
    answers = json.loads((FOLDER / "cli.json").read_text())
    wanted = dict(commands(typer.main.get_command(command_line)))
    assert set(wanted) - {name.partition(" (")[0] for name in answers} == WITHOUT_ANSWER
