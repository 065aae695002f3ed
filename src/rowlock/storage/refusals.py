"""The rows of one load that the database did not take, up to the limit of the load."""

from __future__ import annotations

from rowlock.errors import ImportFault
from rowlock.storage.tables import Load, Refused

KEY_EXISTS = "key_exists"


class Refusals:
    """Counts what is refused; past the limit the load as a whole has failed."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.rows: list[Refused] = []
        self._tried = 0

    def add(self, *more: Refused) -> None:
        self.rows.extend(more)
        # A key that is there already is looked up, not tried: there may be as many of these as there are rows.
        self._tried += sum(refused.code != KEY_EXISTS for refused in more)
        if self._tried > self._load.refused_max:
            first = next(refused for refused in self.rows if refused.code != KEY_EXISTS)
            raise ImportFault(
                f"{self._load.table} refused more than {self._load.refused_max} rows; the first was"
                f" row {first.row}: {first.reason}"
            )

    def in_order(self) -> list[Refused]:
        return sorted(self.rows, key=lambda refused: refused.row)


def key_exists(load: Load, row: int) -> Refused:
    """A row whose key is there already, where each is to be new."""
    return Refused(row, KEY_EXISTS, f"a row with this {', '.join(load.key)} exists already")
