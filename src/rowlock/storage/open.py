"""Creates the store that a URL names."""

from __future__ import annotations

from urllib.parse import urlsplit

from rowlock.clock import Clock
from rowlock.errors import SettingsError
from rowlock.settings import Settings
from rowlock.storage.contract import Store


def open_store(settings: Settings, clock: Clock) -> Store:
    """Returns the store that DATABASE_URL names, not yet connected; raises SettingsError for an unsupported URL."""
    url = settings.database_url
    try:
        scheme = urlsplit(url).scheme.lower()
    except ValueError as error:
        raise SettingsError(f"DATABASE_URL is not a URL: {error}") from None
    match scheme:
        case "sqlite":
            from rowlock.storage.sqlite import SqliteStore

            return SqliteStore(url, clock)
        case "postgresql" | "postgres":
            try:
                from rowlock.storage.postgres import PostgresStore
            except ImportError as error:
                raise SettingsError(
                    f"PostgreSQL needs a driver that is not installed ({error}): pip install 'rowlock[postgres]'"
                ) from None
            return PostgresStore(url, clock, connections=settings.connections, listen_url=settings.listen_url)
        case "mongodb" | "mongodb+srv":
            try:
                from rowlock.storage.mongo import MongoStore
            except ImportError as error:
                raise SettingsError(
                    f"MongoDB needs a driver that is not installed ({error}): pip install 'rowlock[mongodb]'"
                ) from None
            return MongoStore(url, clock, connections=settings.connections)
    raise SettingsError(
        f"DATABASE_URL: {scheme or url!r} is not a supported database; "
        "use sqlite:///file.db, postgresql://user@host/database or mongodb://user@host/database"
    )
