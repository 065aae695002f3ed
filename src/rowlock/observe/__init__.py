"""The single exit for what leaves the process: logs, redaction, traces."""
