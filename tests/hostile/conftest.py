"""The same databases and process trees as in tests/faults."""

from __future__ import annotations

from faults.conftest import (
    database,
    figure,
    fleet,
    mongo_database,
    postgres_database,
    pytest_generate_tests,
    sqlite_database,
)

__all__ = [
    "database",
    "figure",
    "fleet",
    "mongo_database",
    "postgres_database",
    "pytest_generate_tests",
    "sqlite_database",
]
