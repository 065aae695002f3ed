"""Loads rows into users' tables: table schemas, staging, merging, row errors."""
