"""The integrations of an application, by name."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rowlock.errors import IntegrationNotFound, SettingsError
from rowlock.jobs.policy import QueueProfile, Unique
from rowlock.sync.integration import Integration
from rowlock.sync.wire import certificates

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
    def unserved(self) -> list[str]:
        """The queues of those that are disabled: their jobs wait for a worker that can do them."""
        return [queue for hub in self.values() if hub.disabled is not None for queue in hub.queues]

    @property
    def warmers(self) -> list[Callable[[], Awaitable[None]]]:
        """What a worker does when it starts."""
        return [self._warm] if any(hub.disabled is None for hub in self.values()) else []

    async def _warm(self) -> None:
        """Load what the first call would wait for, and have enabled integrations made ready, a little later."""
        await asyncio.to_thread(certificates)
        for hub in self.values():
            for type_name, delay_seconds in hub.starters if hub.disabled is None else ():
                unique = Unique.while_active(key=type_name, on_conflict="return_existing")
                await self._app.enqueue(type_name, delay_seconds=delay_seconds, unique=unique)

    async def let_go(self) -> None:
        """End what this event loop has begun."""
        for hub in self.values():
            await hub.let_go()
