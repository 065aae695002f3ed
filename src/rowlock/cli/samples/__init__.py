"""Sample files for the reference application: good ones, and bad ones whose right outcome is known."""
