"""What was released of the schemas, pinned in `schema/released.json`: it is never edited again.

Run this with each release, and commit the file with it:

    .venv/bin/python tests/conformance/released.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from rowlock.storage.migrate import functions, migrations
from rowlock.storage.mongo.schema import MIGRATIONS

FILE = Path(__file__).parent / "schema" / "released.json"
COMMAND = ".venv/bin/python tests/conformance/released.py"
STORES = ("sqlite", "postgres", "mongo")
SIGNATURE = re.compile(r"^CREATE OR REPLACE FUNCTION rowlock\.(\w+)\s*(\(.*?)\s*\bLANGUAGE\b", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Schema:
    """The schema of a store in one release."""

    migrations: Mapping[str, str] = field(default_factory=dict)  # checksums by label, in order
    version: int = 0  # of the functions
    functions: str = ""  # their checksum
    signatures: Mapping[str, str] = field(default_factory=dict)  # arguments and result by name


def ours(store: str) -> Schema:
    """Return the schema of the working tree."""
    known = MIGRATIONS if store == "mongo" else migrations(store)
    applied = {migration.label: migration.checksum for migration in known}
    if store != "postgres":
        return Schema(applied)
    installed = functions(store)
    signatures = {name: " ".join(text.split()) for name, text in SIGNATURE.findall(installed.sql)}
    return Schema(applied, installed.version, installed.checksum, signatures)


def released(store: str) -> Schema:
    """Return the schema of the last release; an empty one if there was none."""
    return Schema(**orjson.loads(FILE.read_bytes()).get(store, {}))


def broken_promises(then: Schema, now: Schema) -> Iterator[str]:
    """Yield what has changed of a released schema and must not."""
    for label, checksum in then.migrations.items():
        if label not in now.migrations:
            yield f"migration {label} is gone"
        elif now.migrations[label] != checksum:
            yield f"migration {label} was edited: undo it and add a new one"
    if list(now.migrations)[: len(then.migrations)] != list(then.migrations):
        yield "the order of the migrations has changed"
    if now.version < then.version:
        yield f"version {then.version} of the functions was released, and this is version {now.version}"
    elif now.version == then.version and now.functions != then.functions:
        yield f"the functions have changed since their version {then.version} was released: raise it in version.sql"
    for name, signature in then.signatures.items():
        if now.signatures.get(name, signature) != signature:
            yield f"function {name} has other arguments or another result: give it a new name and keep the old one"


if __name__ == "__main__":
    found = {store: asdict(ours(store)) for store in STORES}
    if broken := [each for store in STORES for each in broken_promises(released(store), ours(store))]:
        sys.exit("\n".join(broken))
    FILE.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
