"""Files in the import store: durable, complete or missing, and never outside its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rowlock.errors import SettingsError, StoreUnavailable
from rowlock.storage import blobs as module
from rowlock.storage.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(str(tmp_path / "files"))


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_a_file_that_was_put_is_there_under_its_name_and_nowhere_else(blobs: Blobs, tmp_path: Path) -> None:
    made = blobs.scratch / "made"
    made.write_bytes(b"abc")
    await blobs.put_file("imports/1/source.csv", made)
    assert await blobs.get("imports/1/source.csv") == b"abc"
    assert (await blobs.local("imports/1/source.csv")).read_bytes() == b"abc"
    assert await blobs.exists("imports/1/source.csv")
    assert everything(tmp_path / "files") == ["imports/1/source.csv"]


async def test_a_file_from_another_folder_is_taken_over_too(blobs: Blobs, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_bytes(b"abc")
    await blobs.put_file("a/b", made)
    assert await blobs.get("a/b") == b"abc"
    assert not made.exists()


async def test_bytes_are_put_whole(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.put("a/b", b"x" * 3_000_000)
    assert len(await blobs.get("a/b")) == 3_000_000
    assert everything(tmp_path / "files") == ["a/b"]


async def test_what_is_put_is_synced_before_the_call_returns(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(module, "_sync", synced.append)
    made = blobs.scratch / "made"
    made.write_bytes(b"abc")
    await blobs.put_file("imports/1/source.csv", made)
    root = blobs.scratch.parent
    assert synced == [made, root / "imports" / "1", root / "imports", root]


async def test_a_name_that_is_not_there(blobs: Blobs) -> None:
    assert not await blobs.exists("a/b")
    for ask in (blobs.get, blobs.local):
        with pytest.raises(FileNotFoundError):
            await ask("a/b")
    assert await blobs.delete("a/b") == 0
    assert await blobs.folders("a") == []


async def test_all_files_of_a_folder_go_and_no_others(blobs: Blobs, tmp_path: Path) -> None:
    for name in ("imports/1/source.csv", "imports/1/2/0.arrow", "imports/1/2/1.arrow", "imports/12/source.csv"):
        await blobs.put(name, b"x")
    assert await blobs.folders("imports") == ["1", "12"]
    assert await blobs.delete("imports/1") == 3
    assert everything(tmp_path / "files") == ["imports/12/source.csv"]
    assert await blobs.folders("imports") == ["12"]
    assert await blobs.delete("imports/12/source.csv") == 1
    assert await blobs.folders("imports") == ["12"]


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/.b", "a\\b", "a\0b", "ä", "a b", "a/"]
)
async def test_a_name_that_is_none_of_ours_is_refused(blobs: Blobs, tmp_path: Path, name: str) -> None:
    made = tmp_path / "made"
    made.write_bytes(b"x")
    with pytest.raises(ValueError, match="blob"):
        await blobs.put_file(name, made)
    with pytest.raises(ValueError, match="blob"):
        await blobs.get(name)
    assert made.exists()


async def test_what_was_begun_long_ago_and_never_put_is_cleaned(blobs: Blobs) -> None:
    for name in ("old", "new"):
        (blobs.scratch / name).write_bytes(b"x")
    (blobs.scratch / "folder").mkdir()
    (blobs.scratch / "folder" / "0.arrow").write_bytes(b"x")
    for name in ("old", "folder"):
        os.utime(blobs.scratch / name, (1, 1))
    assert await blobs.clean_scratch(86_400) == 2
    assert everything(blobs.scratch) == ["new"]


async def test_a_store_that_cannot_be_written_says_why_and_not_where(tmp_path: Path) -> None:
    (tmp_path / "files").write_bytes(b"this is a file")
    with pytest.raises(StoreUnavailable, match="not a folder") as refused:
        _ = Blobs(str(tmp_path / "files")).scratch
    assert str(tmp_path) not in str(refused.value)


async def test_a_disk_that_fails_in_the_last_step_leaves_nothing_half_done(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = blobs.scratch / "made"
    made.write_bytes(b"abc")
    sync = module._sync

    def full(path: Path) -> None:
        if path.is_dir():
            raise OSError(28, "No space left on device", str(path))
        sync(path)

    monkeypatch.setattr(module, "_sync", full)
    with pytest.raises(StoreUnavailable, match="no space left") as refused:
        await blobs.put_file("imports/1/source.csv", made)
    assert str(tmp_path) not in str(refused.value)
    assert not await blobs.exists("imports/1/source.csv")


def test_a_store_that_does_not_exist_yet_is_refused() -> None:
    with pytest.raises(SettingsError, match="ROWLOCK_IMPORT_STORE"):
        Blobs("s3://bucket/prefix")


async def test_a_second_name_keeps_the_file_when_the_first_is_deleted(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.put("imports/1/source.csv", b"abc")
    await blobs.linked("imports/1/source.csv", blobs.scratch / "second")
    await blobs.put_file("imports/2/source.csv", blobs.scratch / "second")
    assert everything(tmp_path / "files") == ["imports/1/source.csv", "imports/2/source.csv"]
    await blobs.delete("imports/1")
    assert await blobs.get("imports/2/source.csv") == b"abc"


async def test_a_file_system_without_second_names_gets_a_copy(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    await blobs.put("a", b"abc")
    await blobs.linked("a", blobs.scratch / "copy")
    assert (blobs.scratch / "copy").read_bytes() == b"abc"


async def test_a_file_that_is_not_there_gets_no_second_name(blobs: Blobs) -> None:
    with pytest.raises(FileNotFoundError):
        await blobs.linked("nobody", blobs.scratch / "second")
    assert not (blobs.scratch / "second").exists()
