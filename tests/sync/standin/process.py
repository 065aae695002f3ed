"""The stand-in as a separate process, and its control."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from sync.standin.application import TOKEN

TESTS = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1


def _die_with_the_test() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class StandIn:
    """HubSpot, as far as a connector can see; `with StandIn() as standin: standin.url, standin.token`."""

    token = TOKEN

    def __init__(self) -> None:
        path = ":".join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sync.standin"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            preexec_fn=_die_with_the_test,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, "the stand-in did not start"
        self._control = httpx.Client(base_url=f"{self.url}/_control/", timeout=30, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()

    # -- told --------------------------------------------------------------------------------------

    def reset(self) -> None:
        self._put("reset", None)

    def limits(self, count: int, seconds: float, searches: int = 5, daily: int = 250_000) -> None:
        """The limits: calls per window, searches per second, calls per day."""
        told = [
            {"name": "TEN_SECONDLY_ROLLING", "count": count, "seconds": seconds, "spares": ["search"]},
            {"name": "SECONDLY", "count": searches, "seconds": 1.0, "group": "search"},
            {"name": "DAILY", "count": daily, "seconds": 86_400.0},
        ]
        self._put("limits", told)

    def trouble(self, **told: Any) -> None:
        """Instead of the trouble told before: share, kinds, scripts, storms, latency_seconds, … (see `trouble`)."""
        self._put("trouble", told)

    def script(self, kind: str, times: int = 1, method: str = "", path: str = "", skip: int = 0) -> None:
        """Trouble for the next calls that match, and no other."""
        self.trouble(scripts=[{"kind": kind, "times": times, "method": method, "path": path, "skip": skip}])

    def access(self, tokens: list[str] | None = None, scopes: list[str] | None = None) -> None:
        told = {"tokens": tokens, "scopes": scopes}
        self._put("access", {name: value for name, value in told.items() if value is not None})

    def search_lag(self, seconds: float) -> None:
        self._put("search_lag_seconds", seconds)

    def properties(self, kind: str, *told: dict[str, Any]) -> None:
        """Make properties, as someone else had done it before."""
        self._put("properties", [[kind, each] for each in told])

    def objects(self, kind: str, told: list[dict[str, str]]) -> list[str]:
        """Make objects, as someone else had done it before; their ids."""
        made: list[str] = self._put("objects", [[kind, each] for each in told])
        return made

    # -- asked -------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get("state")
        return found

    def things(self, kind: str) -> list[dict[str, str]]:
        """The properties of all objects of a kind."""
        return [each["properties"] for each in self.state()["objects"][kind]]

    def judgement(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get("judgement")
        return found

    def journal(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("journal")
        return found

    def changes(self) -> list[list[Any]]:
        found: list[list[Any]] = self._get("changes")
        return found

    def _put(self, what: str, told: Any) -> Any:
        return self._answered(self._control.put(what, json=told))

    def _get(self, what: str) -> Any:
        return self._answered(self._control.get(what))

    def _answered(self, answer: httpx.Response) -> Any:
        assert answer.status_code == 200, answer.text
        return answer.json()
