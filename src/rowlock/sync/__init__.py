"""Outbound sync: what an application writes to other services, within their limits, in order, and once."""
