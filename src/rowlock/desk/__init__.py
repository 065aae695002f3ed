"""The operators' desk: everything that people and programs ask from outside, answered in the shapes of the HTTP API.

HTTP routes and commands are thin skins of it; `rowlock.client.Client` is the same desk at the other end of a wire.
"""

from rowlock.desk.fleet import Fleet
from rowlock.desk.imports import Imports
from rowlock.desk.overview import Overview
from rowlock.desk.records import Records
from rowlock.desk.schedules import Schedules
from rowlock.desk.sync import Sync


class Desk(Records, Overview, Sync, Fleet, Schedules, Imports):
    """What may be asked of an application; with a company, of that company's jobs and imports only."""


__all__ = ["Desk"]
