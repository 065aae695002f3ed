"""The pages: see it, upload it, fix it. Rendered here, live in the browser, beside the API."""
