"""What bites people with PostgreSQL, checked."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from rowlock.storage.postgres.connection import SQL, Connections
from rowlock.storage.records import Finding, SchemaState, Severity

_SKEW_SECONDS = 2.0
_OLD_TRANSACTION_SECONDS = 300.0
_CONNECTIONS_SHARE = 0.8
_VERSIONS = range(15, 19)
_SAFE = {
    "fsync": "a crash of the machine can lose or corrupt acknowledged jobs: set fsync = on",
    "synchronous_commit": "a crash of the server can lose acknowledged jobs: set synchronous_commit = on",
    "full_page_writes": "a crash of the machine can corrupt the data: set full_page_writes = on",
    "autovacuum": "the queue tables grow without bound: set autovacuum = on",
}


async def examine(connections: Connections, schema: SchemaState) -> list[Finding]:
    """One finding per check, good ones included."""
    async with connections.connection() as connection:
        before = time.time()
        server: Any = await connection.fetchrow(SQL["examine_server"])
        skew = abs(server["clock"].timestamp() - (before + time.time()) / 2)
        oldest = await connection.fetchrow(SQL["examine_oldest"])
        dead = int(await connection.fetchval(SQL["examine_dead"]))
    return [
        _schema(schema),
        _version(server["version"]),
        *(_setting(name, server[name], advice) for name, advice in _SAFE.items()),
        _skew(skew),
        _old_transaction(oldest, dead),
        _crowd(server["used"], server["max_connections"]),
        _pooler(connections.pooled),
    ]


def _schema(schema: SchemaState) -> Finding:
    if schema.current == schema.wanted:
        return Finding("migrations", Severity.OK, f"schema {schema.current}, up to date")
    if schema.current > schema.wanted:
        newer = f"schema {schema.current} is newer than this Rowlock's {schema.wanted}"
        return Finding("migrations", Severity.ERROR, newer, "upgrade Rowlock")
    behind = f"schema {schema.current}, needs {schema.wanted}"
    return Finding("migrations", Severity.ERROR, behind, "run `rowlock migrate`")


def _version(version: int) -> Finding:
    if version in _VERSIONS:
        return Finding("server version", Severity.OK, f"PostgreSQL {version}")
    wrong = f"PostgreSQL {version} is not one of 15 to 18"
    return Finding("server version", Severity.ERROR, wrong, "use a supported server")


def _setting(name: str, value: str, advice: str) -> Finding:
    if value == "off":
        return Finding(name, Severity.ERROR, f"{name} is off", advice)
    return Finding(name, Severity.OK, f"{name} is {value}")


def _skew(seconds: float) -> Finding:
    if seconds < _SKEW_SECONDS:
        return Finding("clock skew", Severity.OK, f"{seconds * 1000:.0f} ms between this machine and the server")
    return Finding(
        "clock skew",
        Severity.WARNING,
        f"this machine's clock is {seconds:.1f} s off the server's ({datetime.now(UTC):%H:%M:%S} here)",
        "leases use the server's clock and are safe, times in this machine's logs are not: run an NTP client",
    )


def _old_transaction(oldest: Any, dead: int) -> Finding:
    if oldest is None or oldest["age"] < _OLD_TRANSACTION_SECONDS:
        return Finding("old transaction", Severity.OK, f"none over 5 min; {dead:,} dead rows in the queue tables")
    return Finding(
        "old transaction",
        Severity.WARNING,
        f"pid {oldest['pid']} ({oldest['name'] or 'no name'}, {oldest['state']}) has had a transaction open for "
        f"{oldest['age'] / 60:.0f} min; {dead:,} dead rows wait for vacuum",
        f"end it: SELECT pg_terminate_backend({oldest['pid']});",
    )


def _crowd(used: int, most: int) -> Finding:
    severity = Severity.OK if used < _CONNECTIONS_SHARE * most else Severity.WARNING
    advice = "a worker process holds up to 5: run fewer, use a pooler, or raise max_connections"
    return Finding("connections", severity, f"{used} of {most} in use", "" if severity is Severity.OK else advice)


def _pooler(pooled: bool) -> Finding:
    if not pooled:
        return Finding("pooler", Severity.OK, "none: workers are woken by notification")
    return Finding(
        "pooler",
        Severity.WARNING,
        "a pooler stands before the server: idle workers poll instead of being woken",
        "set ROWLOCK_LISTEN_URL to a direct connection for wake-ups in milliseconds",
    )
