"""The expected outcome of importing a sample file into tables that have none of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class BadCell(NamedTuple):
    """An error that the import must report; without a column, the whole row is bad."""

    row: int  # as a spreadsheet program numbers it
    column: str | None
    code: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of rows and their outcomes, or why the import is refused."""

    rows: int = 0
    duplicates: int = 0
    errors: Sequence[BadCell] = ()
    refused: str | None = None  # the error code, if nothing of the file is imported
    at_upload: bool = False  # refused before an import is recorded

    def told(self) -> dict[str, Any]:
        """Return the outcome with the field names of an import's summary."""
        if self.refused is not None:
            return {"status": "REFUSED" if self.at_upload else "FAILED", "code": self.refused}
        failed = len({error.row for error in self.errors})
        return {
            "status": "SUCCEEDED",
            "totalRows": self.rows,
            "inserted": self.rows - failed - self.duplicates,
            "updated": 0,
            "unchanged": 0,
            "duplicates": self.duplicates,
            "failed": failed,
            "errors": [error._asdict() for error in sorted(self.errors, key=lambda error: error[:1])],
        }

    @property
    def words(self) -> str:
        told = self.told()
        if self.refused is not None:
            return f"refused{' at once' if self.at_upload else ''}, {self.refused}"
        parts = [f"{told['totalRows']:,} rows"]
        parts += [f"{told[name]:,} {name}" for name in ("duplicates", "failed") if told[name]]
        return ", ".join(parts)
