"""The oracles of SQLite and PostgreSQL."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import psycopg

from model.import_cases import FIXED_IDS, Spec
from model.import_oracle import Denied, Key, Oracle, Refused, Row
from model.import_values import plain

FIXED_TABLE = "fixed_rows"


class SqlOracle(Oracle):
    """The database commits each row by itself, so that it checks everything that it ever will."""

    mark = "?"

    @abstractmethod
    def run(self, statement: str, given: Sequence[Any] = ()) -> list[Row]: ...

    @abstractmethod
    def bound(self, spec: Spec, value: Any) -> Any:
        """A value as the driver takes it."""

    def create(self) -> None:
        for table in (self.own, self.subject):
            self.run(self._creation(table))
        self.seed(self.case.before)
        names = ", ".join(self.names)
        self.run(f"INSERT INTO {self.subject} ({names}) SELECT {names} FROM {self.own}")
        for table in (self.own, self.subject):
            self.guard(table)

    @abstractmethod
    def guard(self, table: str) -> None:
        """Declare the triggers and rights."""

    def wipe(self) -> None:
        self.run(f"DELETE FROM {self.own}")

    def table(self, name: str) -> dict[Key, Row]:
        names = ", ".join([*self.names, *(["seen"] if self.case.counts_writes else [])])
        return self.keyed(self.run(f"SELECT {names} FROM {name}"))

    def stored(self, key: Mapping[str, Any]) -> Row | None:
        found = self.run(f"SELECT {', '.join(self.names)} FROM {self.own} WHERE {self._same_key()}", self._key_of(key))
        return found[0] if found else None

    def _same_key(self) -> str:
        return " AND ".join(f"{name} = {self.mark}" for name in self.case.key)

    def _key_of(self, values: Mapping[str, Any]) -> list[Any]:
        return [self.bound(self.case.spec(name), values[name]) for name in self.case.key]

    def _statement(self, values: Mapping[str, Any], new: bool) -> tuple[str, list[Any]]:
        names = [name for name in values if new or name not in self.case.key]
        given = [self.bound(self.case.spec(name), values[name]) for name in names]
        if new:
            return f"INSERT INTO {self.own} ({', '.join(names)}) VALUES ({', '.join([self.mark] * len(names))})", given
        sets = ", ".join(f"{name} = {self.mark}" for name in names)
        return f"UPDATE {self.own} SET {sets} WHERE {self._same_key()}", [*given, *self._key_of(values)]

    def _creation(self, table: str) -> str:
        parts = [self._column(table, spec) for spec in self.case.columns]
        parts += ["seen INTEGER NOT NULL DEFAULT 0"] if self.case.counts_writes else []
        parts.append(f"PRIMARY KEY ({', '.join(self.case.key)})")
        return f"CREATE TABLE {table} ({', '.join(parts)}) {self.case.options}"

    def _column(self, table: str, spec: Spec) -> str:
        words = [spec.name, spec.type, *(["NOT NULL"] if spec.not_null else [])]
        if spec.rule is not None:
            words.append(f"CHECK ({spec.rule.format(c=spec.name)})")
        words += self.uniqueness(spec)
        if spec.refers is not None:
            to = f"{FIXED_TABLE} (id)" if spec.refers == "fixed" else f"{table} ({self.case.key[0]})"
            words.append(f"REFERENCES {to} {spec.late}")
        return " ".join(words)

    def uniqueness(self, spec: Spec) -> list[str]:
        return [] if spec.unique is None else [f"UNIQUE {spec.unique}"]


class SqliteOracle(SqlOracle):
    def __init__(self, url: str, *given: Any) -> None:
        super().__init__(*given)
        self.connection = apsw.Connection(url.removeprefix("sqlite:///"))
        self.connection.set_busy_timeout(60_000)
        self.connection.execute("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF")
        self.run(f"CREATE TABLE IF NOT EXISTS {FIXED_TABLE} (id INTEGER PRIMARY KEY)")
        for n in FIXED_IDS:
            self.run(f"INSERT OR IGNORE INTO {FIXED_TABLE} VALUES ({n})")

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[Row]:
        return self.connection.execute(statement, given).fetchall()

    def write(self, values: Mapping[str, Any], wanted: Row, *, new: bool, keep: bool) -> None:
        statement, given = self._statement(values, new)
        first, _, rest = statement.partition(" ")
        try:
            self.run("BEGIN IMMEDIATE")
            self.run(f"{first} OR ABORT {rest}", given)
            self.check(self.stored(values), wanted)
            if self.connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0] > 0:
                raise Refused("refers to nothing")
            self.run("COMMIT" if keep else "ROLLBACK")
        except (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError) as error:
            raise Refused(str(error)) from error
        finally:
            if self.connection.in_transaction:
                self.run("ROLLBACK")

    def bound(self, spec: Spec, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return plain(value, spec.places)

    def uniqueness(self, spec: Spec) -> list[str]:
        folds = ["COLLATE NOCASE"] if self.case.folds and spec.unique is not None and spec.kind == "text" else []
        return [*folds, *super().uniqueness(spec)]

    def guard(self, table: str) -> None:
        trigger, case = self.case.trigger, self.case
        if trigger is not None:
            raises = {"raise": "ABORT, 'no'", "fail": "FAIL, 'no'", "suppress": "IGNORE"}[trigger.action]
            for event in ("INSERT", "UPDATE"):
                when = "AFTER" if trigger.action == "fail" else "BEFORE"
                self.run(
                    f"CREATE TRIGGER {table}_{event} {when} {event} ON {table}"
                    f" WHEN NEW.{trigger.column} = '{trigger.text}' BEGIN SELECT RAISE({raises}); END"
                )
        if case.counts_writes:
            same = " AND ".join(f"{name} = NEW.{name}" for name in case.key)
            for event in ("INSERT", f"UPDATE OF {', '.join(self.names)}"):
                self.run(
                    f"CREATE TRIGGER {table}_seen_{event[:6]} AFTER {event} ON {table}"
                    f" BEGIN UPDATE {table} SET seen = seen + 1 WHERE {same}; END"
                )

    def drop(self) -> None:
        for table in (self.own, self.subject):
            self.run(f"DROP TABLE IF EXISTS {table}")
        self.connection.close()


ROLE = "plain_importer"
SETUP = f"""
DO $$ BEGIN CREATE ROLE {ROLE} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT ALL ON SCHEMA rowlock TO {ROLE};
GRANT ALL ON ALL TABLES IN SCHEMA rowlock TO {ROLE};
GRANT ALL ON ALL SEQUENCES IN SCHEMA rowlock TO {ROLE};
CREATE TABLE IF NOT EXISTS {FIXED_TABLE} (id bigint PRIMARY KEY);
INSERT INTO {FIXED_TABLE} SELECT generate_series({FIXED_IDS.start}, {FIXED_IDS.stop - 1}) ON CONFLICT DO NOTHING;
GRANT SELECT ON {FIXED_TABLE} TO {ROLE};
DO $$ BEGIN
    CREATE TYPE mood AS ENUM ('red', 'blue', 'a', 'moon');
    CREATE DOMAIN short_text AS text CHECK (length(VALUE) < 4);
    CREATE DOMAIN small_number AS int CHECK (VALUE < 100);
EXCEPTION WHEN duplicate_object THEN NULL; END $$;
CREATE OR REPLACE FUNCTION oracle_raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF to_jsonb(NEW)->>TG_ARGV[0] = TG_ARGV[1] THEN RAISE 'no'; END IF; RETURN NEW; END $$;
CREATE OR REPLACE FUNCTION oracle_suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF to_jsonb(NEW)->>TG_ARGV[0] = TG_ARGV[1] THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE OR REPLACE FUNCTION oracle_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.seen := CASE TG_OP WHEN 'UPDATE' THEN OLD.seen + 1 ELSE 1 END; RETURN NEW; END $$;
"""


class PostgresOracle(SqlOracle):
    mark = "%s"

    def __init__(self, connection: psycopg.Connection[Any], *given: Any) -> None:
        super().__init__(*given)
        self.connection = connection
        connection.execute("RESET ROLE")

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[Row]:
        cursor = self.connection.execute(statement, given or None)
        return cursor.fetchall() if cursor.description else []

    def create(self) -> None:
        super().create()
        if self.case.rights != "owner":
            self.connection.execute(f"SET ROLE {ROLE}")

    def table(self, name: str) -> dict[Key, Row]:
        """All rows, also those that the role does not see."""
        self.connection.execute("RESET ROLE")
        try:
            return super().table(name)
        finally:
            if self.case.rights != "owner":
                self.connection.execute(f"SET ROLE {ROLE}")

    def write(self, values: Mapping[str, Any], wanted: Row, *, new: bool, keep: bool) -> None:
        statement, given = self._statement(values, new)
        try:
            with self.connection.transaction(force_rollback=not keep):
                self.run(statement, given)
                self.run("SET CONSTRAINTS ALL IMMEDIATE")
                self.check(self.stored(values), wanted)
        except psycopg.errors.InsufficientPrivilege as error:
            raise (Refused if "row-level security" in str(error) else Denied)(str(error)) from error
        except (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.RaiseException) as error:
            raise Refused(str(error)) from error

    def stored(self, key: Mapping[str, Any]) -> Row | None:
        try:
            return super().stored(key)
        except psycopg.DataError:
            return None  # a key that the column does not take is not there

    def bound(self, spec: Spec, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dt.datetime):
            value = value.astimezone(dt.UTC)
        return plain(value, spec.places)

    def guard(self, table: str) -> None:
        trigger, case = self.case.trigger, self.case
        if trigger is not None:
            function = {"raise": "oracle_raise", "suppress": "oracle_suppress"}[trigger.action]
            self.run(
                f"CREATE TRIGGER a BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW"
                f" EXECUTE FUNCTION {function}('{trigger.column}', '{trigger.text}')"
            )
        if case.counts_writes:
            self.run(
                f"CREATE TRIGGER b BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION oracle_count()"
            )
        if case.rights != "owner":
            self.run(f"GRANT ALL ON {table} TO {ROLE}")
        if case.rights == "no_update":
            self.run(f"REVOKE UPDATE ON {table} FROM {ROLE}")
        if case.rights in ("policy", "hidden"):
            seen = "TRUE" if case.rights == "policy" else "place IS DISTINCT FROM 'Lima'"
            self.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
            self.run(f"CREATE POLICY p ON {table} USING ({seen}) WITH CHECK (place <> 'Atlantis' AND {seen})")

    def drop(self) -> None:
        self.connection.execute("RESET ROLE")
        for table in (self.own, self.subject):
            self.run(f"DROP TABLE IF EXISTS {table}")
