"""The stylesheet, the script and the icon, each at an address with its content's hash, cached for a year."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

from rowlock.http.problem import Problem

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_YEAR = "public, max-age=31536000, immutable"

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    hash: str
    media_type: str


def _load() -> dict[str, Asset]:
    found = {}
    for file in (files(__package__) / "assets").iterdir():
        suffix = file.name.rpartition(".")[2]
        if suffix in _TYPES:
            body = file.read_bytes()
            found[file.name] = Asset(body, blake2b(body, digest_size=8).hexdigest(), _TYPES[suffix])
    return found


ASSETS = _load()


def address(name: str) -> str:
    """Return an asset's path below the mount point."""
    return f"/assets/{ASSETS[name].hash}/{name}"


@router.get("/assets/{hash}/{name}")
async def asset(hash: str, name: str) -> Response:
    found = ASSETS.get(name)
    if found is None:
        raise Problem("not_found", "there is no such file")
    # The hash may be another version's: during a rollout, page and assets may come from different processes.
    control = _YEAR if hash == found.hash else "no-cache"
    return Response(found.body, headers={"cache-control": control}, media_type=found.media_type)
