"""Every command and option has a help text, examples, and a place in the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rowlock.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def commands(group: Any, path: str = "rowlock") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(commands(typer.main.get_command(app)))


def sections() -> dict[str, str]:
    """The reference, by command; what stands before the first is for all of them."""
    parts = re.split(r"^### `(rowlock [^`]+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_commands_are_those_that_others_rely_on() -> None:
    fixed = (
        "up serve worker migrate enqueue health doctor jobs:list,show,retry,cancel dead:list,retry,discard "
        "token:create,list,revoke import imports:list,show,errors,resume,cancel init"
    )
    wanted = set()
    for word in fixed.split():
        group, _, names = word.partition(":")
        wanted |= {f"rowlock {group} {name}" for name in names.split(",")} if names else {f"rowlock {group}"}
    assert wanted <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_and_its_options_have_help_with_examples(path: str) -> None:
    command = COMMANDS[path]
    assert "Examples:" in command.help
    assert re.search(rf"^  (\w+=\S+ )?{path}\b", command.help.split("Examples:")[1], re.MULTILINE)
    for parameter in command.params:
        assert parameter.help, f"{path} {parameter.name} has no help text"
    wanted = {"--json"} if path == "rowlock init" else {"--app", "--database", "--json"}
    assert wanted <= {name for parameter in command.params for name in parameter.opts}


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_and_its_options_are_in_the_reference(path: str) -> None:
    assert path in sections(), f"docs/reference/cli.md has no section on `{path}`"
    text = sections()[path] + sections()[""]
    for parameter in COMMANDS[path].params:
        if getattr(parameter, "hidden", False):
            continue
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("-"):
                assert re.search(rf"`{re.escape(name)}[ `]", text), f"docs/reference/cli.md: `{path}` lacks {name}"


def test_the_reference_names_no_command_or_option_that_does_not_exist() -> None:
    assert set(sections()) - {""} == set(COMMANDS)
    for path, command in COMMANDS.items():
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        rows = re.findall(r"^\| `(-[^|]*) \|", sections()[path], re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"`?(--?[a-z][a-z-]*)", row)}
        assert named <= known, f"docs/reference/cli.md: `{path}` has no {named - known}"


def test_group_help_texts() -> None:
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]  # it is a group
        assert command.help, f"rowlock {name} has no help text"


@pytest.mark.parametrize("path", COMMANDS)
def test_what_operators_ask_can_be_asked_of_a_server(path: str) -> None:
    here = ("up", "serve", "worker", "migrate", "doctor", "token", "init")
    options = {name for parameter in COMMANDS[path].params for name in parameter.opts}
    assert ({"--server", "--token-file"} <= options) == (path.split()[1] not in here)
    assert "--token" not in options, "other users of the machine can read it"
