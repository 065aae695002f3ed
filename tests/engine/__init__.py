"""The engine, everything above the store, on every store."""
