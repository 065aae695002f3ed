"""What starting costs: no process loads a module that it does not use.

Counted in modules, not in seconds. Each of these takes 10 to 200 ms of CPU to load.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rowlock
from rowlock.imports.read.sandbox_process import command
from rowlock.jobs.worker.start_request import boot

DRIVERS = {"apsw", "asyncpg", "pymongo"}
SERVICES = {"apprise", "fastapi", "httpx", "jinja2", "obstore", "polars", "prometheus_client", "starlette", "uvicorn"}
ENGINE = {"asyncio", "concurrent.futures", "opentelemetry", "pydantic", "pydantic_settings", "rowlock.app", "structlog"}
COMMANDS = {"rich", "rowlock.cli", "typer"}
WORK = {"rowlock.imports.read.sandbox", "rowlock.jobs.worker.supervisor", "rowlock.jobs.worker.worker"}

APPLICATION = """
from rowlock import Job, Rowlock

app = Rowlock()


@app.job("demo.hello")
async def hello(job: Job, name: str = "you") -> None: ...
"""
MODULES = "import sys; print('\\n'.join(['modules:', *sys.modules]))"
COMMAND = """
import sys
from rowlock.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    assert not end.code, end.code
"""


def loaded(code: str, folder: Path, database: str = "sqlite:///start.db") -> set[str]:
    """The modules that a fresh process has loaded after this code."""
    (folder / "small.py").write_text(APPLICATION)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    done = subprocess.run(
        [sys.executable, "-c", f"{code.strip()}\n{MODULES}"],
        cwd=folder,
        env={**environment, "DATABASE_URL": database, "ROWLOCK_APP": "small:app"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("modules:\n")[2].split())


def after_command(folder: Path, *arguments: str) -> set[str]:
    return loaded(COMMAND.format(arguments=list(arguments)), folder)


def test_a_module_that_is_loaded_is_found(tmp_path: Path) -> None:
    assert {"rich.table", "typer"} <= loaded("import rich.table, typer", tmp_path)


def test_importing_rowlock_loads_its_errors_and_nothing_slow(tmp_path: Path) -> None:
    found = loaded("import rowlock", tmp_path)
    assert "rowlock.errors" in found
    assert not found & (DRIVERS | SERVICES | ENGINE | COMMANDS | WORK)


def test_the_public_names_are_listed_before_they_are_loaded_and_load_at_first_use(tmp_path: Path) -> None:
    code = """
import sys
import rowlock
assert set(rowlock.__all__) <= set(dir(rowlock))
assert "rowlock.app" not in sys.modules
assert not hasattr(rowlock, "Nonsense")
assert "rowlock.app" not in sys.modules
from rowlock import *
missing = [name for name in rowlock.__all__ if name not in globals()]
assert not missing, missing
"""
    assert "rowlock.app" in loaded(code, tmp_path)


def test_an_unknown_public_name_is_named() -> None:
    with pytest.raises(AttributeError, match="'rowlock' has no attribute 'Nonsense'"):
        _ = rowlock.Nonsense  # type: ignore[attr-defined]


def test_an_application_loads_no_driver_and_no_worker(tmp_path: Path) -> None:
    found = loaded("import small", tmp_path)
    assert "rowlock.app" in found
    assert not found & (DRIVERS | SERVICES | COMMANDS | WORK | {"structlog"})


def test_help_loads_no_engine_and_no_application(tmp_path: Path) -> None:
    found = after_command(tmp_path, "--help")
    assert "typer" in found
    assert not found & (DRIVERS | SERVICES | ENGINE | WORK | {"small"})


@pytest.mark.parametrize("name", ["jobs", "worker"])
def test_help_of_a_command_loads_no_engine_and_no_application(tmp_path: Path, name: str) -> None:
    found = after_command(tmp_path, name, "--help")
    itself = {"pydantic"}  # typer reads the options of a command with it
    assert not found & (DRIVERS | SERVICES | (ENGINE - itself) | WORK | {"small"})


def test_a_command_loads_its_store_and_neither_logs_nor_workers(tmp_path: Path) -> None:
    after_command(tmp_path, "migrate")
    found = after_command(tmp_path, "jobs", "list")
    assert {"small", "rowlock.storage.sqlite"} <= found
    assert not found & ({"asyncpg", "pymongo", "rich", "structlog"} | SERVICES | WORK)


@pytest.mark.parametrize(
    ("url", "store", "others"),
    [
        ("sqlite:///start.db", "rowlock.storage.sqlite", {"asyncpg", "pymongo"}),
        ("postgresql://user:pass@localhost/start", "rowlock.storage.postgres", {"apsw", "pymongo"}),
        ("mongodb+srv://user:pass@localhost/start", "rowlock.storage.mongo", {"apsw", "asyncpg"}),
    ],
)
def test_a_spare_worker_has_loaded_its_own_store_and_the_application(
    tmp_path: Path, url: str, store: str, others: set[str]
) -> None:
    *_, code = boot(url, 3)
    assert "pass" not in code
    found = loaded(code, tmp_path, url)  # its input is at its end: it returns as if its supervisor had gone
    assert {store, "rowlock.app", "rowlock.jobs.worker.worker", "structlog"} <= found
    assert not found & (others | SERVICES | {"typer", "rowlock.cli", "rowlock.imports.read.sandbox"})


def test_the_sandbox_loads_polars_and_neither_application_nor_drivers(tmp_path: Path) -> None:
    module = command()[command().index("-m") + 1]
    found = loaded(f"import {module}", tmp_path)
    assert "polars" in found
    unwanted = {"opentelemetry", "pydantic_settings", "rowlock.app", "structlog"}
    assert not found & (DRIVERS | (SERVICES - {"polars"}) | COMMANDS | WORK | unwanted)
