"""Files by name come only from the import folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowlock.errors import FileRefused
from rowlock.imports.intake.folder import find


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "imports"
    (made / "sub").mkdir(parents=True)
    (made / "a.csv").write_text("x")
    (made / "sub" / "b.csv").write_text("x")
    (made / "sub" / "secret.csv").write_text("x")
    (tmp_path / "secret.csv").write_text("x")
    (made / "out.csv").symlink_to(tmp_path / "secret.csv")
    (made / "within.csv").symlink_to(made / "a.csv")
    (made / "round.csv").symlink_to(made / "round.csv")
    return made


def test_a_file_of_the_folder_is_found(folder: Path) -> None:
    assert find(str(folder), "a.csv") == folder.resolve() / "a.csv"
    assert find(str(folder), "within.csv") == folder.resolve() / "a.csv"


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../secret.csv", "..\\secret.csv", "sub/b.csv", "sub\\b.csv", "/etc/passwd", "./a.csv"),
        *("a.csv\0.txt", "a.csv/", "a\n.csv", "x" * 300, "..%2fsecret.csv", "....//secret.csv", "\u202esecret.csv"),
        *("sub", "out.csv", "round.csv", "missing.csv", "~/secret.csv", "C:\\secret.csv", "secret.csv"),
    ],
)
def test_a_name_that_leads_elsewhere_or_nowhere_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(FileRefused) as refused:
        find(str(folder), name)
    assert refused.value.code in ("file_name_bad", "file_not_found")
    assert str(tmp_path) not in str(refused.value)


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="no file"):
        find(str(tmp_path / "none"), "a.csv")
