"""Rowlock: durable jobs on the database that you already run."""
