"""WHO MAY ASK: the HTTP API, as an ASGI application of its own or mounted in another.

request ─▶ shield ─▶ guard ─▶ body ─▶ once ─▶ routes ─▶ desk
           errors,    token,   size,   Idempotency-Key
           headers    rates    time
"""

from rowlock.web.asgi import Api, asgi

__all__ = ["Api", "asgi"]
