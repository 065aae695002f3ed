"""Outbound sync, against a HubSpot stand-in on a real port."""
