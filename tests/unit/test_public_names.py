"""The public names: complete, sorted, documented; and the tree of errors as documented."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

import rowlock
from public_modules import PUBLIC_MODULES
from rowlock import errors

ERRORS = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
}


def test_the_public_names_are_sorted() -> None:
    assert list(rowlock.__all__) == sorted(rowlock.__all__)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_the_public_names_are_there(module: str) -> None:
    found = import_module(module)
    assert len(set(found.__all__)) == len(found.__all__)
    for name in found.__all__:
        assert getattr(found, name) is not None


def test_the_public_modules_are_those_of_the_documentation() -> None:
    page = Path(__file__).parents[2] / "docs" / "architecture.md"
    section = page.read_text(encoding="utf-8").partition("## Public names")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)) == PUBLIC_MODULES


def test_everything_that_is_imported_there_is_public() -> None:
    imported = {
        name
        for name, value in vars(rowlock).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert imported == set(rowlock.__all__)


def test_every_error_is_public() -> None:
    assert set(ERRORS) <= set(rowlock.__all__)


@pytest.mark.parametrize("name", rowlock.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(rowlock, name)
    if inspect.isclass(value):
        assert (value.__doc__ or "").strip(), f"{name} says nothing about itself"
        assert not (value.__doc__ or "").startswith(f"{name}("), f"{name} has only the signature of its fields"


@pytest.mark.parametrize("owner", [rowlock.Rowlock, rowlock.Job, rowlock.JobTransaction, rowlock.Handler])
def test_every_public_method_is_documented(owner: type) -> None:
    undocumented = [
        name
        for name, value in vars(owner).items()
        if not name.startswith("_") and callable(value) and not (value.__doc__ or "").strip()
    ]
    assert undocumented == []


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([│ ]*)(?:[├└]── )?([A-Z]\w+)(?:\s{2,}(\S.*))?$", line)
        if not found or found[2] not in ERRORS:
            continue
        depth = 0 if line[0].isalpha() else len(found[1]) // 4 + 1
        path[depth:] = [found[2]]
        drawn[found[2]] = path[depth - 1] if depth else None
        assert depth == 0 or found[3], f"{found[2]} is drawn without a word about it"
    actual = {name: None if error.__base__ is Exception else error.__base__.__name__ for name, error in ERRORS.items()}
    assert drawn == actual


def test_every_error_says_what_it_means_and_has_a_code_of_its_own() -> None:
    codes = [error.code for error in ERRORS.values()]
    assert len(set(codes)) == len(codes)
    for name, error in ERRORS.items():
        assert re.fullmatch(r"[a-z_]+", error.code)
        assert (error.__doc__ or "").strip().endswith("."), name


def test_outcomes_carry_what_the_handler_chose() -> None:
    assert rowlock.Retry(after=3).after == 3
    assert rowlock.Retry().after is None
    assert rowlock.Snooze(5, "later").seconds == 5
    assert str(rowlock.Snooze(5, "later")) == "later"
    now = rowlock.FakeClock().now()
    assert rowlock.RateLimited("api", seconds=5).key == "api"
    assert rowlock.RateLimited("api", seconds=5).wait_seconds(now) == 5
    assert rowlock.RateLimited("api", seconds=-5).wait_seconds(now) == 0
    assert rowlock.RateLimited("api", until=now + timedelta(minutes=1)).wait_seconds(now) == 60
    assert rowlock.RateLimited("api", until=now - timedelta(minutes=1)).wait_seconds(now) == 0
    for wrong in ({}, {"seconds": 1, "until": now}):
        with pytest.raises(TypeError, match="exactly one"):
            rowlock.RateLimited("api", **wrong)
    assert rowlock.DuplicateJob("dup", existing_job_id="x").existing_job_id == "x"
