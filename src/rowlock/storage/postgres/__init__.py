"""The PostgreSQL store (15 to 18), through asyncpg."""

from rowlock.storage.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
