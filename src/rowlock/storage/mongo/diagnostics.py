"""Checks for `doctor`: version, replica set, length of the oplog, free connections, clocks, schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from pymongo.errors import OperationFailure

from rowlock.storage.mongo import schema
from rowlock.storage.mongo.connection import OPTIONS, Document, Scope, database, is_replicated
from rowlock.storage.records import Finding, Severity

VERSION_MIN = (6, 0)
CLOCK_SECONDS_MAX = 5.0
OPLOG_HOURS_MIN = 1.0
CONNECTIONS_LEFT_MIN = 50


async def diagnose(scope: Scope) -> list[Finding]:
    """Run every check and return all findings, those of passed checks too."""
    hello = await scope.db.command("hello", codec_options=OPTIONS)
    checks = (
        _version(scope),
        _set(hello),
        _durability(scope, hello),
        _connections(scope),
        _clock(hello),
        _schema(scope),
    )
    return [finding for check in checks async for finding in check]


async def _version(scope: Scope) -> AsyncIterator[Finding]:
    found = await scope.db.command("buildInfo")
    wanted = ".".join(map(str, VERSION_MIN))
    if tuple(found["versionArray"][:2]) < VERSION_MIN:
        yield Finding(
            "version",
            Severity.ERROR,
            f"MongoDB {found['version']} is older than {wanted}, which Rowlock needs",
            f"upgrade the server to {wanted} or later",
        )
    else:
        yield Finding("version", Severity.OK, f"MongoDB {found['version']}")


async def _set(hello: Document) -> AsyncIterator[Finding]:
    if not is_replicated(hello):
        yield Finding(
            "replica set",
            Severity.WARNING,
            "this is a single server without a replica set: workers poll, and there are no transactions. "
            "job.transaction(), enqueue(connection=...) and all_or_nothing imports are refused; other imports write "
            "row by row: their rows are there once, but can be seen early, and stay if the import fails",
            "start it with --replSet and run rs.initiate() once; one member is enough",
        )
        return
    members = len(hello.get("hosts", ()))
    if "setName" not in hello:
        yield Finding("replica set", Severity.OK, "a sharded cluster")
    elif members % 2 == 0:
        yield Finding(
            "replica set",
            Severity.WARNING,
            f"{hello['setName']} has {members} members that hold data: with one lost, there may be no majority",
            "use one, three or five members",
        )
    else:
        yield Finding("replica set", Severity.OK, f"{hello['setName']} has {members} member{'s' * (members > 1)}")


async def _durability(scope: Scope, hello: Document) -> AsyncIterator[Finding]:
    yield Finding("durability", Severity.OK, "every write waits for the journals of a majority (w=majority, j=true)")
    if not is_replicated(hello) or "setName" not in hello:
        return
    try:
        local = database(scope.db.client, "local")
        oplog = local["oplog.rs"]
        first = await oplog.find_one({}, {"wall": 1}, sort=[("$natural", 1)])
        last = await oplog.find_one({}, {"wall": 1}, sort=[("$natural", -1)])
        stats = await local.command("collStats", "oplog.rs")
    except OperationFailure:
        return  # this user lacks the right; nothing depends on it
    if first is None or last is None:
        return
    hours = (last["wall"] - first["wall"]).total_seconds() / 3600
    if hours < OPLOG_HOURS_MIN and stats["size"] > 0.9 * stats["maxSize"]:
        yield Finding(
            "oplog",
            Severity.WARNING,
            f"the oplog holds {hours * 60:.0f} minutes: a member that is offline for longer needs a full resync",
            "enlarge it: db.adminCommand({replSetResizeOplog: 1, size: 16000})",
        )
    else:
        yield Finding("oplog", Severity.OK, f"the oplog has {stats['maxSize'] / 1e9:,.1f} GB")


async def _connections(scope: Scope) -> AsyncIterator[Finding]:
    try:
        found = (await scope.db.client.admin.command("serverStatus"))["connections"]
    except OperationFailure:
        return  # this user lacks the right; nothing depends on it
    if found["available"] < CONNECTIONS_LEFT_MIN:
        yield Finding(
            "connections",
            Severity.WARNING,
            f"{found['current']} connections are open and {found['available']} more are possible",
            "raise net.maxIncomingConnections, or the limit of open files of mongod",
        )
    else:
        yield Finding("connections", Severity.OK, f"{found['current']} connections are open")


async def _clock(hello: Document) -> AsyncIterator[Finding]:
    apart = abs((datetime.now(UTC) - hello["localTime"]).total_seconds())
    if apart > CLOCK_SECONDS_MAX:
        yield Finding(
            "clock",
            Severity.WARNING,
            f"the server's clock and this machine's are {apart:,.0f} s apart; jobs go by the server's",
            "run a time service (chrony, systemd-timesyncd) on both",
        )
    else:
        yield Finding("clock", Severity.OK, "the server's clock and this machine's agree")


async def _schema(scope: Scope) -> AsyncIterator[Finding]:
    yield await schema.finding(scope)
