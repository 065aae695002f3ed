"""Readers turn an untrusted file into rows of cells. They run only in the sandbox."""
