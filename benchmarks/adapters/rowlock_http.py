"""Enqueue over HTTP: `rowlock serve` compared with an empty route, under the same load, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.adapters.http_load import Load
from rowlock.app import Rowlock
from rowlock.control import tokens
from rowlock.storage.access import Role
from rowlock.tokens import new_token

_BODY = json.dumps({"type": "noop", "payload": {"number": 1}}).encode()
_START_SECONDS_MAX = 60.0
_WARM = 500
_TURNS = 3


async def measure(app: Rowlock, app_name: str, url: str, requests: int, connections: int) -> dict[str, Any]:
    """Return requests per second and durations of both; the median of a few turns."""
    token, record = new_token("benchmark", Role.OPERATOR)
    await tokens.add(app.store, record)
    ports = [free_port(), free_port()]
    serve = ["-m", "rowlock", "serve", "--app", app_name, "--database", url, "--port", str(ports[0])]
    found: dict[str, list[dict[str, float]]] = {"rowlock": [], "empty": []}
    with running(serve), running(["-m", "benchmarks.adapters.empty_api", str(ports[1])]):
        for port in ports:
            await answering(port)
        for turn in range(_TURNS + 1):
            for name, port in zip(found, ports, strict=True):
                told = await _turn(port, token, _WARM if turn == 0 else requests, connections)
                if turn:
                    found[name].append(told)
    told = {name: sorted(turns, key=lambda turn: turn["rate"])[_TURNS // 2] for name, turns in found.items()}
    ours, empty = told["rowlock"], told["empty"]
    return ours | {"empty_rate": empty["rate"], "empty_p99_ms": empty["p99_ms"], "share": ours["rate"] / empty["rate"]}


async def _turn(port: int, token: str, requests: int, connections: int) -> dict[str, float]:
    head = (
        f"POST /api/v1/queue/enqueue HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(_BODY)}\r\n\r\n"
    )
    load = Load("127.0.0.1", port, head.encode() + _BODY, requests)
    took = await load.run(connections)
    if load.bad:
        raise RuntimeError(f"{len(load.bad)} requests failed, the first with {load.bad[0][:500]!r}")
    waits = sorted(load.seconds)
    at = {f"p{rank}_ms": waits[len(waits) * rank // 100] * 1_000 for rank in (50, 99)}
    return {"rate": requests / took, **at}


@contextlib.contextmanager
def running(argv: list[str]) -> Iterator[None]:
    """Run another Python process until the context ends."""
    process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)


async def answering(port: int) -> None:
    """Wait until a server listens there."""
    async with asyncio.timeout(_START_SECONDS_MAX):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.1)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


__all__ = ["answering", "free_port", "measure", "running"]
