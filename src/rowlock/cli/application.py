"""Loads the application that `--app` and `--database` name, and prepares its store."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from rowlock.errors import RowlockError, SettingsError

if TYPE_CHECKING:
    from rowlock.app import Rowlock

T = TypeVar("T")

NAME_IT = "give --app MODULE:ATTR or set ROWLOCK_APP; `rowlock init` writes one to start from"


def import_app(name: str | None, database: str | None = None, **settings: Any) -> Rowlock:
    """Import an application, from the current directory first, on `database` if given; raises SettingsError.

    Without a name, it is an application that declares nothing: enough to look at a store and to manage it.
    """
    from rowlock.app import Rowlock

    if name is None:
        return Rowlock(database)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    if database is not None:
        os.environ["DATABASE_URL"] = database  # for settings that are read at import, here and in worker processes
        settings["database_url"] = database
    module, attribute = split_name(name)
    found = _imported(module, attribute, name)
    if not isinstance(found, Rowlock):
        raise SettingsError(f"--app {name}: it is a {type(found).__name__}, not a Rowlock application")
    found.settings = found.settings.model_copy(update=settings)
    return found


def logging_app(name: str, database: str | None, as_json: bool) -> Rowlock:
    """Import an application, and configure logs on standard error by its settings."""
    from rowlock.observe import logs

    chosen = {}
    logs.bridge()
    if as_json:
        os.environ["ROWLOCK_LOG_FORMAT"] = chosen["log_format"] = "json"  # worker processes read it too
    app = import_app(name, database, **chosen)
    logs.configure(app.settings.log_level, app.settings.log_format, app.redact)
    return app


def split_name(name: str) -> tuple[str, str]:
    """Split MODULE:ATTR into module and attribute (default: app)."""
    module, _, attribute = name.partition(":")
    return module, attribute or "app"


def full_name(name: str | None) -> str:
    """Return a name as MODULE:ATTR; raises SettingsError if there is none."""
    if name is None:
        raise SettingsError(f"this command needs an application: {NAME_IT}")
    return ":".join(split_name(name))


def _imported(module: str, attribute: str, name: str) -> object:
    try:
        return getattr(importlib.import_module(module), attribute)
    except RowlockError:
        raise
    except (Exception, SystemExit) as error:
        missing = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and missing and f"{module}.".startswith(f"{missing}."):
            reason = f"there is no module {missing!r}, neither in {os.getcwd()} nor installed"
        elif isinstance(error, AttributeError) and missing == attribute:
            reason = f"module {module!r} has no {attribute!r}"
        else:
            reason = f"importing it failed: {type(error).__name__}: {error}"
        raise SettingsError(f"--app {name}: {reason}") from error


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop if it is installed, otherwise on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.run(work)
    return uvloop.run(work)


async def ready(app: Rowlock) -> list[str]:
    """Migrate an empty database or an outdated SQLite one; others need `migrate`. Returns the applied migrations."""
    state = await app.store.schema()
    embedded = app.settings.database_url.startswith("sqlite:")
    applied: list[str] = []
    if state.current == 0 or (embedded and state.current < state.wanted):
        applied = await app.migrate()
    await app.store.check_schema()
    return applied
