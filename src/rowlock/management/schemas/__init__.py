"""The JSON objects of Rowlock, one model each: for the management service, HTTP, OpenAPI, `--json` and the client."""
