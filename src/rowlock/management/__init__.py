"""The management service: every query and command of operators, with the JSON objects of the HTTP API.

HTTP routes and commands are thin layers over it; `rowlock.client.Client` calls the one of a server.
"""

from rowlock.management.dead_letters import Records
from rowlock.management.imports import Imports
from rowlock.management.overview import Overview
from rowlock.management.queues import Fleet
from rowlock.management.schedules import Schedules
from rowlock.management.sync import Sync


class ManagementService(Records, Overview, Sync, Fleet, Schedules, Imports):
    """The queries and commands of one application; with a company, only of that company's jobs and imports."""


__all__ = ["ManagementService"]
