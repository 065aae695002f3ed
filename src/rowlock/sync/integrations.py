"""The integrations of an application, by name."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rowlock.errors import IntegrationNotFound, SettingsError
from rowlock.jobs.policy import QueueProfile, Unique
from rowlock.sync.integration import Integration

if TYPE_CHECKING:
    from rowlock.app import Rowlock


class Integrations(dict[str, Integration]):
    """What was declared with `app.integration`."""

    def __init__(self, app: Rowlock) -> None:
        super().__init__()
        self._app = app

    def declare(self, name: str, options: dict[str, Any]) -> Integration:
        """Add an integration; raises SettingsError where the name is taken."""
        if name in self:
            raise SettingsError(f"integration {name!r} is declared twice; names must be different")
        made = self[name] = Integration(self._app, name, **options)
        return made

    def named(self, name: str) -> Integration:
        """The integration; raises IntegrationNotFound, which suggests the nearest names."""
        found = self.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self, n=3)
            known = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(self)) or 'none'}"
            raise IntegrationNotFound(f"no integration is called {name!r}; {known}")
        return found

    @property
    def profiles(self) -> dict[str, QueueProfile]:
        """How workers treat their queues, unless they are declared otherwise."""
        return {name: profile for hub in self.values() for name, profile in hub.profiles.items()}

    @property
    def warmers(self) -> list[Callable[[], Awaitable[None]]]:
        """What a worker does when it starts: have enabled integrations made ready, a little later."""
        return [
            partial(self._start, type_name, delay_seconds)
            for hub in self.values()
            if hub.disabled is None
            for type_name, delay_seconds in hub.starters
        ]

    async def _start(self, type_name: str, delay_seconds: float) -> None:
        unique = Unique.while_active(key=type_name, on_conflict="return_existing")
        await self._app.enqueue(type_name, delay_seconds=delay_seconds, unique=unique)

    async def let_go(self) -> None:
        """End what this event loop has begun."""
        for hub in self.values():
            await hub.let_go()
