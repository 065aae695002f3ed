"""pgbouncer in transaction mode before a PostgreSQL server: every transaction may run in another session."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from faults.until import until
from ports import own_port
from postgres_server import _identity

FOLDER_VARIABLE = "ROWLOCK_TEST_PGBOUNCER"
_CACHE = Path(__file__).parents[2] / ".cache/pgbouncer"
_SESSIONS = 3  # fewer than clients, so that they share

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={target} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
server_round_robin = 1
max_client_conn = 500
query_wait_timeout = 30
logfile = {folder}/log
"""


def find_pgbouncer() -> Path | None:
    """Return the path of pgbouncer, installed on the machine or by tests/faults/get_pgbouncer.sh."""
    folders = [os.environ.get(FOLDER_VARIABLE, ""), *os.environ.get("PATH", "").split(":"), "/usr/sbin"]
    places = [*(Path(folder) / "pgbouncer" for folder in folders if folder), _CACHE / "usr/sbin/pgbouncer"]
    return next((place for place in places if os.access(place, os.X_OK)), None)


class Pgbouncer:
    """A pgbouncer on its own port, stopped at the end of the block."""

    def __init__(self, target: int) -> None:
        self.port = own_port()
        self._target = target
        self._folder = Path(tempfile.mkdtemp(prefix="rowlock-pgbouncer-"))
        self._process: subprocess.Popen[bytes] | None = None

    def before(self, url: str) -> str:
        """Return the URL of the same database through this pooler."""
        return url.replace(f":{self._target}/", f":{self.port}/")

    def start(self) -> None:
        program = find_pgbouncer()
        assert program is not None
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(target=self._target, port=self.port, sessions=_SESSIONS, folder=self._folder)
        )
        identity = _identity()  # pgbouncer refuses to run as root, as PostgreSQL does
        if identity:
            for path in (self._folder, settings):
                os.chown(path, identity["user"], identity["group"])
        libraries = ":".join(str(path.parent) for path in _CACHE.rglob("libevent*.so*"))
        self._process = subprocess.Popen(
            [program, "-q", settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"LD_LIBRARY_PATH": libraries},
            start_new_session=True,
            **identity,
        )
        until(self._listens, 10, lambda: (self._folder / "log").read_text())

    def close(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
