"""A running `rowlock up`: the address of its pages, tokens, and access to its store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from rowlock.clock import StoreClock
from rowlock.control import tokens
from rowlock.settings import load
from rowlock.storage.access import Role
from rowlock.storage.open import open_store
from rowlock.tokens import new_token

SECONDS = 60.0
LOOK_SECONDS = 0.05
OVER = ("succeeded", "failed", "cancelled")
_TESTS = Path(__file__).parents[1]
_SETTINGS = {
    "ROWLOCK_HTTP_EVENT_MS": "100",
    "ROWLOCK_HTTP_REFRESH_MS": "400",
    "ROWLOCK_HTTP_TOKEN_SECONDS": "0",
    "ROWLOCK_GRACE_SECONDS": "1",
    "ROWLOCK_IMPORT_MANIFEST": str(_TESTS.parent / "config" / "import-manifest.json"),
    "QUEUE_POLL_MS": "500",
    "WORKER_CONCURRENCY": "8",
}


class House:
    """One process tree on a database of its own."""

    def __init__(self, database: str, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.log: list[str] = []

    # -- from its start to its end -----------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    def complaints(self) -> list[str]:
        """The last of what it logged as wrong."""
        return [line for line in self.log if '"level":"error"' in line.replace('": "', '":"')][-3:]

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()
        await self.store.close()
        await self._end()

    async def _start(self) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ROWLOCK_", "DATABASE_"))}
        path = os.pathsep.join(filter(None, (str(_TESTS), own.get("PYTHONPATH"))))
        self._process: Process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rowlock", "up", "--app", "browser.application:app", "--json", "--port", "0"),
            cwd=self.folder,
            env=own | _SETTINGS | {"DATABASE_URL": self.database, "PYTHONPATH": path},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        self._reading = asyncio.create_task(self._read())
        assert self._process.stdout is not None
        async with asyncio.timeout(SECONDS):
            said = await self._process.stdout.readline()
        self.told: dict[str, Any] = json.loads(said or "{}")
        assert "url" in self.told, f"{self.told}{''.join(self.log)}"
        self.url: str = self.told["url"]
        self.admin: str = self.told["token"]
        self.http = httpx.AsyncClient(base_url=self.url, timeout=SECONDS, trust_env=False, verify=False)
        self.store = open_store(load(database_url=self.database, connections=2), StoreClock())
        await self.store.open()
        await self.get("/api/v1/health")

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.log.append(line.decode())

    async def _end(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading

    async def restart_server(self) -> None:
        """Kill the process that serves; `up` starts another."""
        (server,) = self._servers()
        server.kill()
        await self.until(lambda: any(p.pid != server.pid for p in self._servers()), "another process serves")

    def _servers(self) -> list[psutil.Process]:
        found = []
        for each in psutil.Process(self._process.pid).children():
            with suppress(psutil.Error):  # it has just ended
                if "serve" in each.cmdline():
                    found.append(each)
        return found

    # -- who, and what -----------------------------------------------------------------------------

    async def token(
        self, role: str, company: str | None = None, seconds: float | None = None, name: str | None = None
    ) -> str:
        """A token of this role, which ends after so long."""
        text, token = new_token(name or f"a {role}", Role(role), company, seconds)
        self.token_id = (await tokens.add(self.store, token)).id
        return text

    async def ask(self, method: str, path: str, token: str | None = None, **request: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token or self.admin}"} | request.pop("headers", {})
        return await self.http.request(method, path, headers=headers, **request)

    async def get(self, path: str, token: str | None = None) -> dict[str, Any]:
        answer = await self.ask("GET", path, token)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def enqueue(self, type: str, payload: dict[str, Any] | None = None, **given: Any) -> str:
        """The id of a job that was enqueued. Tests share this house, and may enqueue the same job again."""
        asked = {"type": type, "payload": payload or {}, "unique": {"policy": "none"}, **given}
        answer = await self.ask("POST", "/api/v1/queue/enqueue", json=asked)
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    async def job(self, job_id: str) -> dict[str, Any]:
        return await self.get(f"/api/v1/queue/{job_id}")

    async def reaches(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """The job, as soon as its status is one of these."""
        found: dict[str, Any] = {}

        async def there() -> bool:
            found.update(await self.job(job_id))
            return found["status"] in statuses

        await self.until(there, lambda: f"{job_id} {statuses}: {found}")
        return found

    async def dead(self, count: int = 1, **payload: Any) -> list[str]:
        """Return the ids of this many dead letters."""
        company = payload.pop("company", None)
        given = {} if company is None else {"companyId": company}
        ids = [await self.enqueue("invoice.send", {"number": n} | payload, **given) for n in range(count)]
        for job_id in ids:
            await self.reaches(job_id, "failed")
        return ids

    async def until(self, condition: Callable[[], Any], what: str | Callable[[], object]) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                while not (await found if asyncio.iscoroutine(found := condition()) else found):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not within {SECONDS:g} s: {what() if callable(what) else what}") from None
