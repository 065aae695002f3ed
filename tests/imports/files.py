"""Listing the files in an import store."""

from __future__ import annotations

from pathlib import Path


def stored_files(folder: Path) -> list[str]:
    """The names of all files that are kept."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
