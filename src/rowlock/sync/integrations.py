"""The integrations of an application, by name."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rowlock.errors import IntegrationNotFound, SettingsError
from rowlock.jobs.policy import QueueProfile, Unique
from rowlock.sync.integration import Integration
from rowlock.sync.request import certificates

if TYPE_CHECKING:
    from rowlock.app import Rowlock


class Integrations(dict[str, Integration]):
    """The integrations declared with `app.integration`."""

    def __init__(self, app: Rowlock) -> None:
        super().__init__()
        self._app = app

    def declare(self, name: str, options: dict[str, Any]) -> Integration:
        """Add an integration. Raises SettingsError if the name is taken."""
        if name in self:
            raise SettingsError(f"integration {name!r} is declared twice; names must be different")
        made = self[name] = Integration(self._app, name, **options)
        return made

    def named(self, name: str) -> Integration:
        """Return the integration. Raises IntegrationNotFound, which suggests similar names."""
        found = self.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self, n=3)
            known = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(self)) or 'none'}"
            raise IntegrationNotFound(f"no integration is called {name!r}; {known}")
        return found

    @property
    def profiles(self) -> dict[str, QueueProfile]:
        """Default profiles of their queues. A queue that the application declares overrides them."""
        return {name: profile for integration in self.values() for name, profile in integration.profiles.items()}

    @property
    def unserved(self) -> list[str]:
        """The queues of disabled integrations: their jobs wait for a worker with the integration enabled."""
        return [
            queue for integration in self.values() if integration.disabled is not None for queue in integration.queues
        ]

    @property
    def warmers(self) -> list[Callable[[], Awaitable[None]]]:
        """Functions that a worker runs when it starts."""
        return [self._warm] if any(integration.disabled is None for integration in self.values()) else []

    @property
    def starters(self) -> list[Callable[[], Awaitable[None]]]:
        """Functions that the application runs when it starts, before any worker process is ready."""
        return (
            [self._start]
            if any(integration.starters and integration.disabled is None for integration in self.values())
            else []
        )

    async def _warm(self) -> None:
        """Load the TLS certificates, so that the first call does not wait for them."""
        await asyncio.to_thread(certificates)

    async def _start(self) -> None:
        """Enqueue the start jobs of the enabled integrations. Delays count from start-up."""
        for integration in self.values():
            for type_name, delay_seconds in integration.starters if integration.disabled is None else ():
                unique = Unique.while_active(key=type_name, on_conflict="return_existing")
                await self._app.enqueue(type_name, delay_seconds=delay_seconds, unique=unique)

    async def let_go(self) -> None:
        """Close the connections of the running event loop."""
        for integration in self.values():
            await integration.let_go()
