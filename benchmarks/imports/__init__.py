"""Imports of large files: Rowlock beside the ways that people write themselves, on the same rows and one machine."""
