"""Checks a PostgreSQL server for common misconfigurations."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rowlock.storage.postgres.connection import SQL, STATEMENT_SECONDS, Connections
from rowlock.storage.records import Finding, Severity

_SKEW_SECONDS = 2.0
_OLD_TRANSACTION_SECONDS = 300.0
_CONNECTIONS_SHARE = 0.8
_VERSIONS = range(15, 19)
_TIMEOUTS = {
    "statement_timeout": "long statements of imports, migrations and retention are cut off",
    "lock_timeout": "statements that wait for another worker's lock are cut off",
    "idle_in_transaction_session_timeout": "a handler that pauses inside job.transaction() loses its connection",
    "transaction_timeout": "handlers that stay long inside job.transaction(), and large chunks, are cut off",
}
_SOURCES = {
    "user": "set for the role",
    "database": "set for the database",
    "database user": "set for the role in this database",
    "configuration file": "set in postgresql.conf",
    "client": "set by DATABASE_URL or the environment",
}
_SAFE = {
    "fsync": "a crash of the machine can lose or corrupt acknowledged jobs: set fsync = on",
    "synchronous_commit": "a crash of the server can lose acknowledged jobs: set synchronous_commit = on",
    "full_page_writes": "a crash of the machine can corrupt the data: set full_page_writes = on",
    "autovacuum": "the queue tables grow without bound: set autovacuum = on",
}


async def diagnose(connections: Connections) -> list[Finding]:
    """Returns one finding per check of the server and of this connection, including those that are OK."""
    async with connections.connection() as connection:
        before = time.time()
        server: Any = await connection.fetchrow(SQL["diagnose_server"])
        skew = abs(server["clock"].timestamp() - (before + time.time()) / 2)
        session = {row["name"]: row for row in await connection.fetch(SQL["diagnose_session"])}
        role = await connection.fetchval(SQL["diagnose_role"])
        oldest = await connection.fetchrow(SQL["diagnose_oldest"])
        dead = int(await connection.fetchval(SQL["diagnose_dead"]))
    return [
        _version(server["version"]),
        *(_setting(name, server[name], advice) for name, advice in _SAFE.items()),
        *_session(session, role),
        _skew(skew),
        _old_transaction(oldest, dead),
        _crowd(server["used"], server["max_connections"]),
        _pooler(connections.pooled),
    ]


def _version(version: int) -> Finding:
    if version in _VERSIONS:
        return Finding("server version", Severity.OK, f"PostgreSQL {version}")
    wrong = f"PostgreSQL {version} is not one of 15 to 18"
    return Finding("server version", Severity.ERROR, wrong, "use a supported server")


def _setting(name: str, value: str, advice: str) -> Finding:
    if value == "off":
        return Finding(name, Severity.ERROR, f"{name} is off", advice)
    return Finding(name, Severity.OK, f"{name} is {value}")


def _session(settings: Mapping[str, Any], role: str) -> list[Finding]:
    """Returns findings about defaults of the server, the database or the role that every connection starts with."""
    found = [_timeout(settings[name], harm, role) for name, harm in _TIMEOUTS.items() if name in settings]
    return [*found, _writable(settings)]


def _timeout(setting: Any, harm: str, role: str) -> Finding:
    name, seconds = setting["name"], int(setting["setting"]) / 1000
    if seconds == 0:
        return Finding(name, Severity.OK, f"no {name}")
    if seconds >= STATEMENT_SECONDS:
        return Finding(name, Severity.OK, f"{name} is {seconds:g} s")
    wrong = f"{name} is {seconds:g} s ({_source(setting)}): {harm}"
    return Finding(name, Severity.WARNING, wrong, _reset(role, name))


def _writable(settings: Mapping[str, Any]) -> Finding:
    if settings["transaction_read_only"]["setting"] == "off":
        return Finding("read-only", Severity.OK, "the server accepts writes")
    return Finding(
        "read-only",
        Severity.ERROR,
        "the server accepts no writes: it is a standby, or default_transaction_read_only is on",
        "name all hosts in DATABASE_URL (postgresql://user@host1,host2/database): Rowlock connects to the one that "
        "accepts writes",
    )


def _source(setting: Any) -> str:
    source = str(setting["source"])
    return _SOURCES.get(source, source)


def _reset(role: str, name: str) -> str:
    """Sets it for the role in this database, which takes precedence over all other places."""
    return f"run ALTER ROLE {role} SET {name} = 0, and restart the workers"


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
