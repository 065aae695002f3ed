"""What the two wheels install, built as pip builds them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


def built(distribution: Path, folder: Path) -> ZipFile:
    """Build the wheel in a copy, since setuptools leaves files behind."""
    copy = shutil.copytree(
        distribution / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(distribution / name, copy.parent)
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=copy.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ZipFile(folder / done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("name", "package"), [(".", "rowlock"), ("backoffice", "backoffice")])
def test_a_wheel_installs_one_package_with_all_of_its_files(tmp_path: Path, name: str, package: str) -> None:
    source = ROOT / name / "src"
    with built(ROOT / name, tmp_path) as wheel:
        installed = {file for file in wheel.namelist() if ".dist-info/" not in file}
    assert {file.partition("/")[0] for file in installed} == {package}
    wanted = {path for path in (source / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert installed == {str(path.relative_to(source)) for path in wanted}
