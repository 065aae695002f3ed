"""Tests of the engine (everything above the store), run on every store."""
