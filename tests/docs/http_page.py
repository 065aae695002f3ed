"""docs/reference/http.md, from the OpenAPI description: `python tests/docs/http_page.py` writes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rowlock.app import Rowlock
from rowlock.settings import load
from rowlock.web.asgi import Api
from rowlock.web.openapi import describe
from rowlock.web.problem import PROBLEMS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"

INTRODUCTION = """# HTTP API

Served by `rowlock up` and `rowlock serve`, or mounted in an ASGI application of your own (see [jobs](../jobs.md#over-http)).
`GET /openapi.json` is the same as a machine reads it. JSON is camelCase; times are ISO 8601 in UTC.

    curl -H "Authorization: Bearer $ROWLOCK_TOKEN" http://127.0.0.1:8000/api/v1/queue?status=failed

## Who may ask

Every route except `/healthz` and `/readyz` needs `Authorization: Bearer rlk_…`. `rowlock token create` makes a token, shows it
once and stores its hash. A role may do what the ones before it may: **viewer** looks, **operator** enqueues, retries, cancels
and pauses, **admin** sees raw payloads and everything under `/api/admin`. A token for one company (`--company`) sees, counts
and changes that company's jobs only; routes marked *fleet* refuse it.

## The same request again

A POST with an `Idempotency-Key` (a text of your own, new for each request) may be sent again when its answer was lost: it is
answered as before, with `Idempotency-Replayed: true`, and not done again. A job that it enqueues exists once, even when the
server died in between. Keys belong to their token and are kept for a day.

## Asking again and again

Answers to GET carry an `ETag`; with `If-None-Match` the answer is `304` while nothing has changed. Better still, listen to
`/api/v1/events`.

## Events

`GET /api/v1/events` is a stream of server-sent events about every process and machine:

| event | data |
|---|---|
| `ready` | the first of a new stream |
| `job` | the state of a job that changed: id, type, queue, status, attempts, progress, message, error, companyId, changedAt |
| `queue` | the counts of a queue that changed (not with a company's token) |
| `gap` | more has changed than is told: read again what you show |

An event tells the state as it is when it is looked at, twice a second by default; states that passed in between are left out,
the last one never is. A client that lost its connection sends the last `id` as `Last-Event-ID` (browsers do so by themselves)
and hears what it missed in the last hour, some of it perhaps twice. A slow client gets a `gap` instead of a backlog.
"""


def page() -> str:
    schema = describe(Api(Rowlock(settings=load(database_url="sqlite:///unused.db"))).routes)
    parts = [INTRODUCTION, "## Routes\n"]
    tags: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(method, path, operation, schema))
    for tag, operations in tags.items():
        parts += [f"### {tag.capitalize()}\n", *operations]
    rows = [f"| `{code}` | {kind.status} | {kind.title} |" for code, kind in PROBLEMS.items()]
    parts += [
        "## Errors\n",
        "`application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): `type`, `title`, `status`, `detail` and a",
        "stable `code`. `429` and `503` say in `Retry-After` when to try again.\n",
        "| code | status | meaning |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any], schema: dict[str, Any]) -> str:
    lines = [f"#### `{method.upper()} {path}`\n", f"{operation['summary']}. {operation.get('description', '')}".strip(), ""]
    given = [_parameter(p) for p in operation.get("parameters", ()) if p["name"] != "Idempotency-Key"]
    if given:
        lines += ["| parameter | in | what it does |", "|---|---|---|", *given, ""]
    body = operation.get("requestBody")
    if body is not None:
        (content,) = body["content"].values()
        lines += [_fields(content["schema"], schema, "field of the body"), ""]
    lines += [_answers(operation["responses"], schema), ""]
    return "\n".join(lines)


def _parameter(parameter: dict[str, Any]) -> str:
    told = parameter.get("description") or parameter["schema"].get("description") or ""
    name = f"`{parameter['name']}`" + (" (needed)" if parameter.get("required") and parameter["in"] != "path" else "")
    return f"| {name} | {parameter['in']} | {told} |"


def _fields(reference: dict[str, Any], schema: dict[str, Any], title: str) -> str:
    model = _resolve(reference, schema)
    needed = model.get("required", [])
    rows = [f"| {title} | type | what it is |", "|---|---|---|"]
    for name, field in model["properties"].items():
        told = field.get("description", "") + (" Needed." if name in needed else "")
        rows.append(f"| `{name}` | {_type(field, schema)} | {told.strip()} |")
    return "\n".join(rows)


def _answers(responses: dict[str, Any], schema: dict[str, Any]) -> str:
    good = [status for status in responses if status < "300"]
    bad = [f"`{status}`" for status in responses if status >= "300"]
    told = []
    for status in good:
        content = responses[status].get("content", {})
        kind, shape = next(iter(content.items()), ("", {}))
        model = shape.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
        fields = ", ".join(f"`{name}`" for name in _resolve(shape["schema"], schema).get("properties", ())) if model else ""
        told.append(f"`{status}` {fields or kind or responses[status]['description']}")
    return f"Answers {'; '.join(told)}. Otherwise {', '.join(bad)}."


def _resolve(reference: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = reference.get("$ref", "").rsplit("/", 1)[-1]
    return dict(schema["components"]["schemas"][name]) if name else reference


def _type(field: dict[str, Any], schema: dict[str, Any]) -> str:
    if "anyOf" in field:
        return ", ".join(_type(each, schema) for each in field["anyOf"] if each.get("type") != "null")
    if "$ref" in field:
        inner = _resolve(field, schema)["properties"]
        return "object: " + ", ".join(f"`{name}` ({_type(each, schema)})" for name, each in inner.items())
    if "enum" in field:
        return " or ".join(f"`{each}`" for each in field["enum"])
    return str(field.get("type", "any"))


if __name__ == "__main__":
    PAGE.write_text(page())
