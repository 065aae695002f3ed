"""The environment of a run: machine, versions, settings, commit; no paths and no names of hosts or people."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.install import program, version
from benchmarks.plan import Plan
from benchmarks.server import Server
from benchmarks.systems import Runtime, System

_SERVER_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "autovacuum")
_REPOSITORY = Path(__file__).resolve().parent.parent


def describe(systems: list[System], cache: Path, server: Server | None, plan: Plan, data: Path) -> dict[str, Any]:
    about: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "cpu": f"{os.cpu_count()} cores, {_field('/proc/cpuinfo', 'model name')}",
        "memory": f"{int(_field('/proc/meminfo', 'MemTotal').split()[0]) // 1024**2 + 1} GiB",
        "system": f"{_field('/etc/os-release', 'PRETTY_NAME', '=')}, Linux {platform.release().split('-')[0]}",
        "filesystem": filesystem(data),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": round(os.getloadavg()[0], 2),
        "plan": asdict(plan),
        "versions": {system.name: version(system, cache) for system in systems},
        "settings": {system.name: _settings(system) for system in systems},
    }
    node = [system for system in systems if system.runtime is Runtime.NODE]
    if node:
        about["node"] = _told([program(node[0], cache)[0], "--version"])
    if server is not None:
        with server.connect() as connection:
            shown = {name: connection.execute(f"SHOW {name}").fetchone() for name in _SERVER_SETTINGS}
        about["postgresql"] = server.version().split()[0]
        about["postgresql_settings"] = {name: str(row[0]) for name, row in shown.items() if row}
    return about


def commit() -> str:
    """Return the short hash of the commit that is checked out, marked if the working tree differs from it."""
    short = _told(["git", "-C", str(_REPOSITORY), "rev-parse", "--short", "HEAD"])
    if not short:
        return "uncommitted"
    return f"{short}-dirty" if _told(["git", "-C", str(_REPOSITORY), "status", "--porcelain", "src"]) else short


def filesystem(directory: Path) -> str:
    """Return the type of the file system of this directory."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found = line.split()[:3]
        if directory.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _settings(system: System) -> dict[str, Any]:
    given = {"default": system.default, "best": system.best, "latency": system.latency_settings, "batch": system.batch}
    return {name: dict(settings) for name, settings in given.items() if settings is not None}


def _field(path: str, name: str, separator: str = ":") -> str:
    found = re.search(rf"^{name}\s*{separator}\s*(.*)$", Path(path).read_text(), re.MULTILINE)
    return found[1].strip('"') if found else "unknown"


def _told(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
