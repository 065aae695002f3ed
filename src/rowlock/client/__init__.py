"""The operators' desk at the other end of a wire: a typed client of the HTTP API.

async with Client("https://jobs.example.org", token) as client:
    job = await client.enqueue("send.email", {"to": "a@b.c"})
    job = await client.wait(job["id"], seconds=60)
"""

from rowlock.client.calls import Client
from rowlock.client.stream import Event

__all__ = ["Client", "Event"]
