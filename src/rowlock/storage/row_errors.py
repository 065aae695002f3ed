"""The rows of a load that the database refused."""

from __future__ import annotations

from dataclasses import replace

from rowlock.errors import ImportFault
from rowlock.storage.tables import Load, Refused

KEY_EXISTS = "key_exists"
SUPPRESSED = "suppressed"


class RowErrors:
    """Collects refused rows without limit. Most share a few reasons, so each reason is kept once to save memory."""

    def __init__(self) -> None:
        self.rows: list[Refused] = []
        self._reasons: dict[str, str] = {}

    def add(self, *more: Refused) -> None:
        for refused in more:
            reason = self._reasons.setdefault(refused.reason, refused.reason)
            self.rows.append(refused if reason is refused.reason else replace(refused, reason=reason))

    def in_order(self) -> list[Refused]:
        return sorted(self.rows, key=lambda refused: refused.row)


def referred_to(table: str, rule: str | None = None) -> ImportFault:
    """Returns the error for rows to be wiped that other rows refer to."""
    by = f" (rule {rule})" if rule else ""
    return ImportFault(
        f"the rows of {table} that this import replaces cannot be deleted: other rows refer to them{by}; delete "
        f"those first, declare the reference ON DELETE CASCADE, or import with mode='upsert'"
    )


def key_exists(load: Load, row: int) -> Refused:
    """Refuses a row whose key exists, in a load that only inserts."""
    return Refused(row, KEY_EXISTS, f"a row with this {', '.join(load.key)} exists already")


def suppressed(row: int) -> Refused:
    """Refuses a row that the database skipped silently: RAISE(IGNORE), a BEFORE trigger that returns NULL, a rule."""
    return Refused(row, SUPPRESSED, "a trigger of the table skipped this row")
