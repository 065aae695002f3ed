"""Ports for servers of our own that must know theirs before they start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST, _FEWEST = 10_000, 1_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_claims: list[socket.socket] = []


def own_port() -> int:
    """Return a loopback port that no other process of these tests gets while this one lives.

    Not one of those that the system gives to clients: another test's connection could have it before the server
    starts, or while it restarts. A name in the abstract namespace claims it; the system frees that with the process.
    """
    to_clients = int(_RANGE.read_text().split()[0])
    ports = range(_LOWEST, max(to_clients, _LOWEST + _FEWEST))
    for port in random.SystemRandom().sample(ports, len(ports)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0rowlock-tests-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
    raise RuntimeError(f"no port of {ports} is free")
