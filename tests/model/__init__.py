"""A simple model of a job's life, and stores held to it."""
