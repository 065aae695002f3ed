"""Imports of large files: Rowlock compared with other ways to import, on the same rows and one machine."""
