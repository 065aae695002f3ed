"""The endpoints that a connector may use: path, scope, fields and query as in HubSpot's public description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from sync.standin import batches, objects
from sync.standin.asked import Answer, Asked
from sync.standin.crm import Crm
from sync.standin.refusal import Refusal, malformed
from sync.standin.schema import TYPE_IDS
from sync.standin.windows import SEARCH


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: tuple[str, ...]
    handler: Callable[[Crm, Asked], Answer]
    scope: str
    query: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()  # of the body; none: no body
    required: frozenset[str] = frozenset()
    group: str | None = None

    def match(self, method: str, segments: list[str]) -> dict[str, str] | None:
        if method != self.method or len(segments) != len(self.path):
            return None
        found = {}
        for wanted, given in zip(self.path, segments, strict=True):
            if wanted.startswith("{"):
                found[wanted[1:-1]] = unquote(given)
            elif wanted != given:
                return None
        if found.get("kind", "contacts") not in TYPE_IDS or found.get("other", "contacts") not in TYPE_IDS:
            return None
        return found

    def check(self, asked: Asked) -> None:
        if unknown := sorted(set(asked.query) - self.query):
            raise malformed(f"unknown query parameters: {unknown}")
        if not self.fields:
            if asked.body not in (None, {}):
                raise malformed("this call has no body")
            return
        if not isinstance(asked.body, dict):
            raise malformed("Invalid input JSON: an object is needed")
        if missing := sorted(self.required - set(asked.body)):
            raise malformed(f"Invalid input JSON: required fields were not set: {missing}")
        if unknown := sorted(set(asked.body) - self.fields):
            raise malformed(f"Invalid input JSON: unknown fields {unknown}")


def _endpoint(line: str, handler: Callable[[Crm, Asked], Answer], scope: str, **more: Any) -> Endpoint:
    method, path = line.split()
    sets = {name: frozenset(more.pop(name, "").split()) for name in ("query", "fields", "required")}
    sets["fields"] |= sets["required"]
    return Endpoint(method, tuple(path.strip("/").split("/")), handler, scope, **sets, **more)


_OBJECTS = "/crm/v3/objects/{kind}"
_OBJECT = "crm.objects.{kind}"
_PROPERTY = "label type fieldType groupName options description displayOrder hidden formField"
ENDPOINTS = (
    _endpoint(f"POST {_OBJECTS}", objects.create_object, f"{_OBJECT}.write", required="properties",
              fields="associations"),
    _endpoint(f"POST {_OBJECTS}/batch/read", batches.batch_read, f"{_OBJECT}.read", query="archived",
              required="inputs properties", fields="idProperty propertiesWithHistory"),
    _endpoint(f"POST {_OBJECTS}/batch/create", batches.batch_create, f"{_OBJECT}.write", required="inputs"),
    _endpoint(f"POST {_OBJECTS}/batch/update", batches.batch_update, f"{_OBJECT}.write", required="inputs"),
    _endpoint(f"POST {_OBJECTS}/batch/upsert", batches.batch_upsert, f"{_OBJECT}.write", required="inputs"),
    _endpoint(f"POST {_OBJECTS}/search", objects.search, f"{_OBJECT}.read", group=SEARCH,
              fields="query limit after sorts properties filterGroups"),
    _endpoint(f"GET {_OBJECTS}/{{id}}", objects.get_object, f"{_OBJECT}.read",
              query="properties propertiesWithHistory associations archived idProperty"),
    _endpoint(f"PATCH {_OBJECTS}/{{id}}", objects.update_object, f"{_OBJECT}.write", query="idProperty",
              required="properties"),
    _endpoint("PUT /crm/v4/objects/{kind}/{id}/associations/default/{other}/{other_id}", objects.associate_default,
              f"{_OBJECT}.write"),
    _endpoint("GET /crm/v4/objects/{kind}/{id}/associations/{other}", objects.list_associations, f"{_OBJECT}.read",
              query="after limit"),
    _endpoint("POST /crm/v4/associations/{kind}/{other}/batch/associate/default", objects.batch_associate_default,
              f"{_OBJECT}.write", required="inputs"),
    _endpoint("GET /crm/v3/properties/{kind}", objects.list_properties, "crm.schemas.{kind}.read",
              query="archived properties dataSensitivity locale"),
    _endpoint("POST /crm/v3/properties/{kind}", objects.create_property, "crm.schemas.{kind}.write", required="name",
              fields=f"{_PROPERTY} hasUniqueValue"),
    _endpoint("POST /crm/v3/properties/{kind}/batch/create", objects.create_properties, "crm.schemas.{kind}.write",
              required="inputs"),
    _endpoint("GET /crm/v3/properties/{kind}/{name}", objects.get_property, "crm.schemas.{kind}.read",
              query="archived properties"),
    _endpoint("PATCH /crm/v3/properties/{kind}/{name}", objects.update_property, "crm.schemas.{kind}.write",
              fields=_PROPERTY),
)  # fmt: skip
SCOPES = sorted(
    {f"crm.objects.{kind}.{right}" for kind in ("contacts", "companies", "deals") for right in ("read", "write")}
    | {f"crm.schemas.{kind}.{right}" for kind in ("contacts", "companies", "deals") for right in ("read", "write")}
)


def scopes_of(endpoint: Endpoint, path: dict[str, str]) -> list[str]:
    """What the caller must be granted; an association is a change of both sides."""
    kinds = [path["kind"], *([path["other"]] if "other" in path else [])]
    return [endpoint.scope.replace("{kind}", "contacts" if kind == "notes" else kind) for kind in kinds]


def find(method: str, segments: list[str]) -> tuple[Endpoint, dict[str, str]]:
    """The endpoint of a request; fixed words come before names."""
    for endpoint in ENDPOINTS:
        if (path := endpoint.match(method, segments)) is not None:
            return endpoint, path
    raise Refusal(404, "NOT_FOUND", f"no endpoint: {method} /{'/'.join(segments)}", complaint=True)
