"""The objects that the import jobs of a process share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.imports.importer import ImportType
from rowlock.imports.jobs import ImportJobs
from rowlock.imports.read.sandbox import Sandbox
from rowlock.jobs.engine import Engine
from rowlock.storage.blobs import Blobs


@dataclass(frozen=True, slots=True)
class ImportContext:
    engine: Engine
    types: Mapping[str, ImportType]
    blobs: Blobs
    jobs: ImportJobs
    sandbox: Sandbox
    log: Any
