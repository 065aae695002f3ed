"""The application of the next release: one more job type, and one renamed job type."""

from __future__ import annotations

from faults.app import HANDLERS, make_app, tick

app = make_app(handlers=[handler for handler in HANDLERS if handler is not tick])
app.job("fresh")(tick)
app.job("tock")(tick)
app.alias("tick", "tock")
