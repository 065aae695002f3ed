"""Readers: from an untrusted file to rows of cells. They run in the planner's sandbox only."""
