"""Diagnostics for SQLite: version, durability, file system, disk space, write-ahead log, schema, integrity."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from rowlock.storage.records import Finding, Severity
from rowlock.storage.sqlite import schema

SAFE_VERSION = (3, 51, 3)
FREE_BYTES_MIN = 1_000_000_000
WAL_BYTES_MAX = 1_000_000_000

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}
)
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def diagnose(connection: apsw.Connection, path: Path) -> list[Finding]:
    """Run every check; return its findings, also for checks that pass."""
    return [
        *_version(),
        *_durability(connection),
        *_file_system(path),
        *_space(path),
        *_log(path),
        Finding("clock", Severity.OK, "the store's clock is this machine's: there is no other to differ from"),
        schema.finding(connection),
        *_integrity(connection, path),
    ]


def _version() -> Iterator[Finding]:
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < SAFE_VERSION:
        wanted = ".".join(map(str, SAFE_VERSION))
        yield Finding(
            "version",
            Severity.ERROR,
            f"SQLite {version} can damage a database in WAL mode; fixed in {wanted}",
            f"upgrade apsw: pip install 'apsw>={wanted}'",
        )
    else:
        yield Finding("version", Severity.OK, f"SQLite {version}")


def _durability(connection: apsw.Connection) -> Iterator[Finding]:
    mode = connection.pragma("journal_mode")
    if mode == "wal":
        yield Finding("journal", Severity.OK, "the journal mode is WAL")
    else:
        yield Finding(
            "journal",
            Severity.ERROR,
            f"the journal mode is {mode}, so readers and the writer block each other",
            "set it once: PRAGMA journal_mode = WAL",
        )
    synchronous = _SYNCHRONOUS.get(connection.pragma("synchronous"), "unknown")
    if synchronous in ("FULL", "EXTRA"):
        yield Finding("fsync", Severity.OK, f"synchronous is {synchronous}: a commit is on the disk when it returns")
    else:
        yield Finding(
            "fsync",
            Severity.ERROR,
            f"synchronous is {synchronous}: jobs can be lost when the power fails",
            "remove whatever sets PRAGMA synchronous",
        )


def _file_system(path: Path) -> Iterator[Finding]:
    kind = _file_system_of(path)
    if kind in _NETWORK:
        yield Finding(
            "file system",
            Severity.ERROR,
            f"{path} is on a network file system ({kind}), where SQLite's locks cannot be relied on",
            "move the file to a local disk, or use PostgreSQL",
        )
    else:
        yield Finding("file system", Severity.OK, f"{path} is on {kind or 'a file system that looks local'}")


def _file_system_of(path: Path) -> str | None:
    """Return the type of the mount that holds the file; None if /proc/self/mounts does not name it."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    mounts = {fields[1]: fields[2] for fields in map(str.split, lines) if len(fields) > 2}
    for folder in (path, *path.parents):
        if str(folder) in mounts:
            return mounts[str(folder)]
    return None


def _space(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    if free < FREE_BYTES_MIN:
        yield Finding(
            "disk",
            Severity.WARNING,
            f"{free / 1e6:,.0f} MB are left on the disk of {path}",
            "free some space: on a full disk nothing can be enqueued or finished",
        )
    else:
        yield Finding("disk", Severity.OK, f"{free / 1e9:,.0f} GB are left")


def _log(path: Path) -> Iterator[Finding]:
    try:
        size = os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        size = 0
    if size > WAL_BYTES_MAX:
        yield Finding(
            "wal",
            Severity.WARNING,
            f"the write-ahead log has {size / 1e9:,.1f} GB: a reader holds on to an old state of the store",
            f"find the process with a long read transaction (fuser {path}) and end it",
        )
    else:
        yield Finding("wal", Severity.OK, f"the write-ahead log has {size / 1e6:,.1f} MB")


def _integrity(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    problems = [text for (text,) in connection.execute("PRAGMA quick_check(3)")]
    if problems == ["ok"]:
        yield Finding("integrity", Severity.OK, "quick_check found nothing")
    else:
        yield Finding(
            "integrity",
            Severity.ERROR,
            f"{path} is damaged: {'; '.join(problems)}",
            "stop all workers and restore the file from a backup",
        )
