"""The checkers of import types; each is compiled once per process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowlock.imports.importer import ImportType

if TYPE_CHECKING:
    from rowlock.imports.check.check import Checker

_MADE: dict[int, tuple[ImportType, Checker]] = {}


def checker(declared: ImportType) -> Checker:
    """Return the checker of an import type, compiled on first use."""
    from rowlock.imports.check.check import Checker

    if id(declared) not in _MADE:
        _MADE[id(declared)] = (declared, Checker(declared.row, declared.fields))
    return _MADE[id(declared)][1]
