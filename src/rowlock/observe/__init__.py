"""What leaves the process, redacted in one place: logs, metrics, traces and notifications."""
