"""Input that wants to be something else: data that would be code, secrets that would be read."""
