"""Row validation: a pydantic model compiled to checks of whole columns, and row by row for the rest.

cells ─▶ columns (accept, or flag) ─▶ good rows
            └─ flagged ─▶ coerce ─▶ judge (pydantic) ─▶ good rows, and the reasons for the bad ones
"""
