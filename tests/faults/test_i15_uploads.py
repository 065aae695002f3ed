"""I15, for uploads: a full disk causes no false answer and no partial file; uploads work again when there is space."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from faults.test_i15_full_disk import SPACE_MB, mounted
from rowlock import Rowlock
from rowlock.errors import StoreUnavailable
from rowlock.imports.intake.upload import Incoming
from rowlock.management import ManagementService
from rowlock.settings import load

LINE = b"ada@example.org,Ada Lovelace\n"


class Customer(BaseModel):
    email: str
    name: str


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    if not mounted(folder):
        pytest.skip("a small disk has to be mounted, which only root may")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
async def management(tmp_path: Path, small: Path) -> AsyncIterator[ManagementService]:
    settings = load(database_url=f"sqlite:///{tmp_path}/jobs.db", import_store=str(small))
    app = Rowlock(settings=settings)
    app.importer("customers", row=Customer, key=["email"], into="customers")
    async with app:
        await app.migrate()
        yield ManagementService(app)


def written(tmp_path: Path, megabytes: float) -> Path:
    path = tmp_path / "customers.csv"
    path.write_bytes(b"email,name\n" + LINE * int(megabytes * 1_048_576 / len(LINE)))
    return path


def stored(small: Path) -> list[Path]:
    return [path for path in small.rglob("*") if path.is_file()]


async def test_a_full_disk_takes_no_file_and_keeps_no_part_of_one(
    management: ManagementService, tmp_path: Path, small: Path
) -> None:
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="no space left"):
            await management.import_file(written(tmp_path, SPACE_MB + 2), type="customers")
        assert stored(small) == []
    assert (await management.import_jobs()).imports == []
    fits = written(tmp_path, SPACE_MB / 2)
    told = await management.import_file(fits, type="customers")
    (kept,) = stored(small)
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == told.sha256
    assert [each.id for each in (await management.import_jobs()).imports] == [told.id]


async def test_the_attack_notices_an_error_that_is_swallowed(
    management: ManagementService, tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Incoming._save

    def careless(self: Incoming, data: bytes, last: bool) -> None:
        with contextlib.suppress(OSError):
            save(self, data, last)

    monkeypatch.setattr(Incoming, "_save", careless)
    told = await management.import_file(written(tmp_path, SPACE_MB + 2), type="customers")
    (kept,) = stored(small)
    assert hashlib.sha256(kept.read_bytes()).hexdigest() != told.sha256
