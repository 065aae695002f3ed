"""The management service of a server: a typed client of the HTTP API.

async with Client("https://jobs.example.org", token) as client:
    job = await client.enqueue("send.email", {"to": "a@b.c"})
    job = await client.wait(job.id, seconds=60)
"""

from rowlock.errors import SettingsError

try:
    from rowlock.client.calls import Client
    from rowlock.client.stream import Event
except ImportError as error:
    if error.name != "httpx":
        raise
    raise SettingsError("asking a server needs httpx: pip install 'rowlock[client]'") from None

__all__ = ["Client", "Event"]
