"""A simple model of the life of jobs, compared with every store."""
