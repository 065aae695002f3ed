"""The client and the commands, importing through a server: the same results, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rowlock.client import Client
from rowlock.client import wire as wiring
from rowlock.errors import (
    CompanyMismatch,
    DuplicateImport,
    FileRefused,
    ImportIsOver,
    ImportNotFound,
    ImportNotResumable,
    RequestFailed,
    UnknownImportType,
)
from rowlock.management import ManagementService
from web.importing import CSV, declare_importers, half_done, imported
from web.relay import Relay
from web.site import Site
from web.test_cli_server import Run, run
from web.test_client import as_json

__all__ = ["run"]

NOBODY = "01932c07-2ab0-7000-8000-3f6c1e2d4b5a"


@pytest.fixture
async def client(site: Site) -> AsyncIterator[Client]:
    declare_importers(site.app)
    async with Client(site.url, site.tokens["admin"]) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "customers.csv"
    path.write_bytes(CSV)
    return path


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wiring, "_AGAIN_SECONDS_MAX", 0.05)


@pytest.mark.every_store
async def test_a_client_answers_what_the_management_answers(site: Site, client: Client) -> None:
    import_id = await imported(site, companyId="acme")
    await half_done(site, import_id)
    management = ManagementService(site.app)
    for ask in (
        lambda one: one.import_job(import_id),
        lambda one: one.import_jobs(),
        lambda one: one.import_jobs(type="customers", status="RUNNING", company_id="acme", limit=1),
        lambda one: one.import_errors(import_id),
        lambda one: one.import_errors(import_id, after_row=3, limit=1),
        lambda one: one.import_types(),
        lambda one: one.import_template("customers"),
    ):
        assert as_json(await ask(client)) == as_json(await ask(management))
    parts = [b"".join([part async for part in one.import_errors_csv(import_id)]) for one in (client, management)]
    assert parts[0] == parts[1]
    assert (await client.cancel_import(import_id)).status == "CANCELLED"
    assert (await client.resume_import(import_id)).status == "RUNNING"
    assert (await client.wait_import(import_id, 0.0)).status == "RUNNING"


async def test_a_file_is_sent_with_what_is_said_about_it(client: Client, file: Path) -> None:
    sent: list[int] = []
    told = await client.import_file(
        file, type="customers", sheet="S", company_id="acme", project_id="p", dry_run=True, sent=sent.append
    )
    assert sum(sent) == len(CSV)
    assert (told.company_id, told.project_id, told.sheet_name, told.dry_run) == ("acme", "p", "S", True)
    assert told.file_name == "customers.csv"


async def test_a_file_of_the_servers_folder_is_imported_by_its_name(site: Site, client: Client) -> None:
    folder = Path(site.app.settings.import_folder)
    folder.mkdir()
    (folder / "a.csv").write_bytes(CSV)
    assert (await client.import_named("a.csv", type="customers")).status == "QUEUED"
    with pytest.raises(FileRefused) as refused:
        await client.import_named("b.csv", type="customers")
    assert refused.value.code == "file_not_found"


async def test_errors_are_those_of_local_calls(site: Site, client: Client, file: Path, tmp_path: Path) -> None:
    first = await client.import_file(file, type="customers")
    management, acme = ManagementService(site.app), ManagementService(site.app, "acme")
    (tmp_path / "a.xlsx").write_bytes(CSV)
    for one in (client, management):
        with pytest.raises(DuplicateImport) as duplicate:
            await one.import_file(file, type="customers")
        assert duplicate.value.existing_import_id == first.id
        with pytest.raises(UnknownImportType, match="did you mean"):
            await one.import_file(file, type="custmers")
        with pytest.raises(FileRefused, match="a text file") as refused:
            await one.import_file(tmp_path / "a.xlsx", type="customers")
        assert refused.value.code == "file_content_mismatch"
        with pytest.raises(FileRefused, match="cannot be read"):
            await one.import_file(tmp_path / "none.csv", type="customers")
        for ask in (one.import_job, one.import_errors, one.resume_import, one.cancel_import):
            for nobody in (NOBODY, "nonsense"):
                with pytest.raises(ImportNotFound):
                    await ask(nobody)
        with pytest.raises(ImportNotFound):
            await anext(one.import_errors_csv(NOBODY))
        with pytest.raises(ImportNotResumable):
            await one.resume_import(first.id)
    await client.cancel_import(first.id)
    with pytest.raises(ImportIsOver):
        await client.cancel_import(first.id)
    with pytest.raises(CompanyMismatch):
        await acme.import_file(file, type="customers", company_id="globex")


async def test_a_file_whose_answer_was_lost_is_imported_once(
    site: Site, client: Client, file: Path, at_once: None
) -> None:
    async with Relay(site.port) as relay, Client(relay.url, site.tokens["admin"]) as lossy:
        relay.answers_to_lose = 1
        told = await lossy.import_file(file, type="customers")
    assert told.sha256
    assert [each.id for each in (await client.import_jobs()).imports] == [told.id]


async def test_a_forced_file_is_not_sent_again_on_its_own(
    site: Site, client: Client, file: Path, at_once: None
) -> None:
    async with Relay(site.port) as relay, Client(relay.url, site.tokens["admin"]) as lossy:
        relay.answers_to_lose = 1
        with pytest.raises(RequestFailed) as failed:
            await lossy.import_file(file, type="customers", force=True)
    assert failed.value.code == "server_unavailable"
    assert len((await client.import_jobs()).imports) == 1


async def test_the_command_imports_through_a_server(run: Run, site: Site, client: Client, file: Path) -> None:
    done = await run("import", str(file), "--type=customers", "--json", token="operator")
    assert (done.code, done.json["status"]) == (0, "QUEUED")
    again = await run("import", str(file), "--type=customers", "--json")
    assert (again.code, again.json["existingImportId"]) == (1, done.json["id"])
    assert (await run("import", str(file), "--type=nonsense", "--json")).code == 2
    waiting = asyncio.create_task(run("import", str(file), "--type=customers", "--force", "--wait", "--json"))
    stop = asyncio.Event()
    working = asyncio.create_task(site.app.work(stop=stop))
    over: Any = await waiting
    stop.set()
    await working
    assert (over.code, over.json["status"]) == (0, "SUCCEEDED"), over.json
    errors = await run("imports", "errors", over.json["id"], "--json")
    assert errors.code == 0
