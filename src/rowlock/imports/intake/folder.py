"""Finds files by name in the import folder or in a company's folder inside it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

from rowlock.errors import CompanyMismatch, FileRefused
from rowlock.imports.intake.file_type import NAME_LENGTH_MAX


def find(folder: str, name: str) -> Path:
    """Return the path of a file in the import folder; raises FileRefused if it is missing or outside the folder."""
    if not _plain(name):
        raise FileRefused(
            f"{name[:80]!r} is not the name of a file in the import folder: give the name without a path",
            code="file_name_bad",
        )
    try:
        root = Path(folder).resolve(strict=True)
        found = (root / name).resolve(strict=True)  # follows links, which must not lead out of the folder
    except (OSError, RuntimeError):
        raise _missing(name) from None
    if found.parent != root or not found.is_file():
        raise _missing(name)
    return found


def of_company(folder: str, company_id: str) -> str:
    """Return this company's folder inside the import folder; raises CompanyMismatch if it has none."""
    found = Path(folder, company_id)
    if not _plain(company_id) or not found.is_dir() or found.is_symlink():
        raise CompanyMismatch(
            f"company {company_id!r} has no folder in the import folder: upload the file, or ask the operator to put "
            f"it into ROWLOCK_IMPORT_FOLDER/{company_id}"
        )
    return str(found)


def _plain(name: str) -> bool:
    """Return whether this is a file name without folders."""
    return (
        0 < len(name) <= NAME_LENGTH_MAX
        and name not in (".", "..")
        and name.isprintable()
        and "/" not in name
        and "\\" not in name
        and Path(name).name == name
    )


def _missing(name: str) -> FileRefused:
    return FileRefused(f"there is no file {name!r} in the import folder", code="file_not_found")
