"""Files by name from the import folder, and from nowhere else."""

from __future__ import annotations

from pathlib import Path

from rowlock.errors import FileRefused
from rowlock.imports.signature import NAME_LENGTH_MAX


def find(folder: str, name: str) -> Path:
    """The file of this name in the import folder; raises FileRefused for a name that leads elsewhere, or nowhere."""
    if (
        not 0 < len(name) <= NAME_LENGTH_MAX
        or name in (".", "..")
        or not name.isprintable()
        or "/" in name
        or "\\" in name
        or Path(name).name != name
    ):
        raise FileRefused(
            f"{name[:80]!r} is not the name of a file in the import folder; give it without folders",
            code="file_name_bad",
        )
    try:
        root = Path(folder).resolve(strict=True)
        found = (root / name).resolve(strict=True)  # where a link leads: it must not lead out of the folder
    except (OSError, RuntimeError):
        raise _missing(name) from None
    if found.parent != root or not found.is_file():
        raise _missing(name)
    return found


def _missing(name: str) -> FileRefused:
    return FileRefused(f"there is no file {name!r} in the import folder", code="file_not_found")
