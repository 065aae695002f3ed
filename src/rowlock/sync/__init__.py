"""Outbound sync: what an application writes to other services, within their limits, in order, and once."""

from rowlock.sync.allow import Allow
from rowlock.sync.answer import Answer
from rowlock.sync.call import Call, Calls
from rowlock.sync.integration import Integration
from rowlock.sync.operation import Update

__all__ = ["Allow", "Answer", "Call", "Calls", "Integration", "Update"]
