"""Named SQL statements from .sql files: `-- name: verb` starts one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statements(store: str) -> Mapping[str, str]:
    """Returns every statement of `sql/<store>/statements/*.sql` by its name."""
    found: dict[str, str] = {}
    folder = files("rowlock.storage") / "sql" / store / "statements"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        pieces = _NAME.split(entry.read_text(encoding="utf-8"))
        for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
            assert name not in found, f"statement {name} is defined twice"
            found[name] = text.strip()
    return found
