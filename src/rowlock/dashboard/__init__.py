"""The dashboard: pages rendered on the server, updated live in the browser, served beside the API."""
