"""Records of imports, their chunks and steps."""
