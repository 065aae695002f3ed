"""The example of the documentation: a second integration in one small file, with its own small service."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from rowlock import IntegrationDisabled, Rowlock, Status

ROOT = Path(__file__).parents[2]


@pytest.fixture
def notes_url() -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        command = ["-m", "uvicorn", "notes_service:service", "--app-dir", "examples", "--log-level", "error"]
        process = subprocess.Popen(
            [sys.executable, *command, "--fd", str(listening.fileno())], cwd=ROOT, pass_fds=[listening.fileno()]
        )
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(60)


def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **environment: str) -> ModuleType:
    """The example as a worker imports it."""
    for name, value in {"DATABASE_URL": f"sqlite:///{tmp_path}/notes.db", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(ROOT))
    sys.modules.pop("examples.notes", None)
    return importlib.import_module("examples.notes")


async def test_notes_arrive_and_the_newest_text_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes_url: str
) -> None:
    example = load(monkeypatch, tmp_path, NOTES_URL=notes_url, NOTES_TOKEN="notes-token")
    async with example.app as app:
        await app.migrate()
        await example.notes.enqueue("keep", {"name": "a/b", "text": "one"})
        await app.work(drain=True)
        wishes = [{"name": f"n{n % 40}", "properties": {"n": n}} for n in range(80)]
        wishes.append({"name": "long", "properties": {"text": "x" * 1_001}})
        await example.notes.enqueue_many("change", [*wishes, {"name": "a/b", "properties": {"text": "two"}}])
        async with asyncio.timeout(60):
            while (await example.notes.stats())["pending"]:
                await app.work(drain=True)
        stats = await example.notes.stats()
        assert (stats["completed24h"], stats["dead"]) == (82, 1)
        (dead,) = (await app.jobs(status=Status.FAILED)).jobs
        assert dead.error == "a note has at most 1000 characters"
    headers = {"authorization": "Bearer notes-token"}
    async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
        while (answer := await client.get(f"{notes_url}/notes")).status_code == 429:
            await asyncio.sleep(0.2)
    kept = answer.json()
    assert kept.pop("a/b") == {"text": "two"}
    assert kept == {f"n{n}": {"n": n + 40} for n in range(40)}


async def test_without_its_token_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTES_TOKEN", raising=False)
    example = load(monkeypatch, tmp_path)
    with pytest.raises(IntegrationDisabled, match="notes is disabled: set NOTES_TOKEN"):
        await example.notes.enqueue("keep", {"name": "a", "text": "b"})


def test_the_page_shows_it_as_it_is() -> None:
    code = (
        (ROOT / "examples" / "notes.py")
        .read_text()
        .split('"""', 2)[2]
        .replace("from __future__ import annotations", "")
    )
    assert code.strip() in (ROOT / "docs" / "sync.md").read_text()


async def test_the_command_line_knows_it(tmp_path: Path) -> None:
    async with Rowlock(f"sqlite:///{tmp_path}/notes.db") as app:
        await app.migrate()
    environment = {**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path}/notes.db", "NOTES_TOKEN": "notes-token"}
    command = [sys.executable, "-m", "rowlock", "sync", "list", "--app", "examples.notes:app", "--json"]
    run = partial(subprocess.run, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    listed = (await asyncio.to_thread(run, command)).stdout
    assert '"notes"' in listed
    assert '"keep"' in listed
