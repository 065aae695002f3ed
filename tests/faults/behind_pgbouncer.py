"""`pytest -p faults.behind_pgbouncer tests/conformance`: the whole suite on PostgreSQL behind pgbouncer.

The stores connect through the pooler. Callers' connections stay direct: Rowlock does not decide how those connect.
"""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from conformance import stores
from faults.pgbouncer import Pgbouncer
from rowlock.clock import Clock
from rowlock.storage.contract import Store

_poolers: dict[int, Pgbouncer] = {}


class PgbouncerRig(stores.PostgresRig):
    def __init__(self, folder: Path, resource: Any = None) -> None:
        super().__init__(folder, resource)
        if resource.port not in _poolers:
            pooler = _poolers[resource.port] = Pgbouncer(resource.port)
            atexit.register(pooler.close)
            pooler.start()

    def store_at(self, url: str, clock: Clock) -> Store:
        return super().store_at(_poolers[self.resource_given.port].before(url), clock)


stores.STORES = (PgbouncerRig,)
