"""Outbound sync: writes to other services, within their rate limits, in order per subject, without duplicates."""
