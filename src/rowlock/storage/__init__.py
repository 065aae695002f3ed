"""The store contract (`contract`), its records, and the stores that implement it."""
