"""Importing the file of a dry run: without uploading it again, once, and as long as it is stored."""

from __future__ import annotations

import asyncio

import pytest

from imports.conftest import Office, told
from imports.files import stored_files
from rowlock import DuplicateImport
from rowlock.errors import ImportNotFound, ImportNotResumable
from rowlock.management import ManagementService
from rowlock.management.schemas.imports import ImportSchema
from rowlock.storage.imports import ImportStatus

FILE = "E-mail,Name,credit\na@x.org,Ann,1\nb@x.org,Bob,2\nbad,B,1\n"


async def test_a_dry_run_keeps_its_file_and_nothing_else(office: Office) -> None:
    checked = await office.run(FILE, dry_run=True)
    assert checked.cleaned_at is None
    assert stored_files(office.folder / "store") == [checked.path]


async def test_what_was_checked_is_imported_from_the_same_bytes(office: Office) -> None:
    checked = await office.run(FILE, dry_run=True)
    added = await ManagementService(office.app).import_again(checked.id, user_id="u1")
    assert (added.sha256, added.file_name, added.dry_run) == (checked.sha256, checked.file_name, False)
    assert (added.type, added.created_by_user_id) == (checked.type, "u1")
    await office.app.work(drain=True)
    record = await office.app.store.get_import(added.id)
    assert record is not None
    assert record.status is ImportStatus.SUCCEEDED
    assert told(record) == told(checked) == (3, 2, 0, 0, 0, 1)
    assert stored_files(office.folder / "store") == [checked.path]  # its own name of the file is gone


async def test_the_same_rows_are_imported_once_however_often_it_is_asked(office: Office) -> None:
    checked = await office.run(FILE, dry_run=True)
    management = ManagementService(office.app)
    answers = await asyncio.gather(*(management.import_again(checked.id) for _ in range(5)), return_exceptions=True)
    (made,) = [each for each in answers if isinstance(each, ImportSchema)]
    others = [each for each in answers if isinstance(each, DuplicateImport)]
    assert len(others) == 4
    assert {each.existing_import_id for each in others} == {made.id}
    assert len(stored_files(office.folder / "store")) == 2
    with pytest.raises(DuplicateImport, match="already") as told_of:
        await management.import_again(checked.id, force=True)  # who presses twice means it once
    assert told_of.value.existing_import_id == made.id
    assert len(stored_files(office.folder / "store")) == 2
    await office.app.work(drain=True)
    forced = await management.import_again(checked.id, force=True)
    assert forced.id != made.id


async def test_a_file_that_is_gone_must_be_sent_again(office: Office) -> None:
    record = await office.run(FILE)
    with pytest.raises(ImportNotResumable, match="upload it again"):
        await ManagementService(office.app).import_again(record.id, force=True)
    assert stored_files(office.folder / "store") == []


async def test_another_companys_file_is_not_there(office: Office) -> None:
    checked = await office.run(FILE, dry_run=True)
    with pytest.raises(ImportNotFound):
        await ManagementService(office.app, "acme").import_again(checked.id)
