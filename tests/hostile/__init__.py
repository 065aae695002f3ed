"""Hostile input: data that would be executed, secrets that would be shown."""
