"""A stand-in for HubSpot on a real port: keeps state, enforces scopes and limits, fails on demand, and judges."""

from sync.standin.process import StandIn

__all__ = ["StandIn"]
