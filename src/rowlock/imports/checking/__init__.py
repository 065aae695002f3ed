"""Checking rows: a pydantic model compiled to whole columns, and row by row where that cannot be.

cells ─▶ columns (accept, or flag) ─▶ good rows
            └─ flagged ─▶ coerce ─▶ judge (pydantic) ─▶ good rows, and the reasons for the bad ones
"""
