"""Delete rows of a user's table by the values of their columns, before an import replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw

from rowlock.storage.chunk import alone
from rowlock.storage.row_errors import referred_to
from rowlock.storage.sqlite.loading.merge import kept_rows
from rowlock.storage.sqlite.loading.table_schema import must_have, quoted

_REFERRED_TO = "FOREIGN KEY"  # compared by text: ON DELETE RESTRICT has the error code of a trigger


def wiped(connection: apsw.Connection, table: str, scope: Mapping[str, Any]) -> int:
    """Delete the rows whose columns have the values of `scope`, as a load stores them; return how many.

    Raises ImportFault if other rows refer to them.
    """
    table_schema = must_have(connection, table, list(scope))
    conditions = " AND ".join(f"{quoted(column)} IS ?" for column in scope) or "TRUE"
    given = [_kept(value) for value in scope.values()]
    try:
        connection.execute(f"DELETE FROM {table_schema.sql} WHERE {conditions}", given)  # noqa: S608 - quoted
    except apsw.ConstraintError as error:
        if not str(error).startswith(_REFERRED_TO):
            raise
        raise referred_to(table) from error
    return connection.changes()


def check_references(connection: apsw.Connection, table: str) -> None:
    """Raise ImportFault if a deferred constraint would refuse the commit, because rows of other tables refer to it."""
    if connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0] == 0:
        return
    own = table.rpartition(".")[2].casefold()
    for child, _, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        if parent.casefold() == own != child.casefold():
            raise referred_to(table, f"a foreign key of {child}")


def _kept(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    ((cell,),) = next(kept_rows(alone(value)))
    return cell
