"""The modules that applications import; docs/architecture.md lists them."""

PUBLIC_MODULES = ("rowlock", "rowlock.client", "rowlock.http", "rowlock.sync.hubspot", "rowlock.testing")
