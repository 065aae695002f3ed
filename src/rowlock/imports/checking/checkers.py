"""The compiled models of import types; each is made once in a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowlock.imports.importer import ImportType

if TYPE_CHECKING:
    from rowlock.imports.checking.check import Checker

_MADE: dict[int, tuple[ImportType, Checker]] = {}


def checker(declared: ImportType) -> Checker:
    """What checks the rows of an import type."""
    from rowlock.imports.checking.check import Checker

    if id(declared) not in _MADE:
        _MADE[id(declared)] = (declared, Checker(declared.row, declared.fields))
    return _MADE[id(declared)][1]
