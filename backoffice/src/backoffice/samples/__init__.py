"""Sample files for the reference application: good ones, and bad ones with their expected outcomes."""
