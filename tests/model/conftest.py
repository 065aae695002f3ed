"""Runs every machine on every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.stores import STORES, Rig
from model.bench import Bench


@pytest.fixture(params=STORES, ids=[kind.name for kind in STORES])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    kind: type[Rig] = request.param
    resource = request.getfixturevalue(kind.resource) if kind.resource else None
    bench = Bench(kind(tmp_path, resource))
    yield bench
    bench.close()
