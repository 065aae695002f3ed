"""The HTTP API: an ASGI application, served alone or mounted in another.

request ─▶ error boundary ─▶ auth ─▶ body limits ─▶ idempotency key ─▶ routes ─▶ management service
           errors, headers,   token,  size, time,    stored answers
           time limit         rates   number
"""

from rowlock.http.asgi import Api, asgi

__all__ = ["Api", "asgi"]
