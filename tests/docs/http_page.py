"""Generates docs/reference/http.md from the OpenAPI description: `python tests/docs/http_page.py` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rowlock.app import Rowlock
from rowlock.http.asgi import Api
from rowlock.http.openapi import describe
from rowlock.http.problem import PROBLEMS
from rowlock.settings import load

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"

INTRODUCTION = Path(__file__).with_name("http_introduction.md").read_text()


_ALWAYS = ("Idempotency-Key", "If-None-Match")  # the introduction has them
_JOBS = {
    "JobSchema": "a [job](#a-job)",
    "EnqueuedSchema": "a [job](#a-job) and `created`",
    "ImportSchema": "an [import](#an-import)",
    "ImportWholeSchema": "an [import](#an-import) and its `chunks`",
}


def page() -> str:
    schema = describe(Api(Rowlock(settings=load(database_url="sqlite:///unused.db"))).routes)
    job = _fields({"$ref": "#/components/schemas/JobSchema"}, schema, "field")
    found = _fields({"$ref": "#/components/schemas/ImportSchema"}, schema, "field")
    parts = [INTRODUCTION, f"## A job\n\n{job}\n", f"## An import\n\n{found}\n", "## Routes\n"]
    tags: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append(_operation(method, path, operation, schema))
    for tag, operations in tags.items():
        parts += [f"### {tag.capitalize()}\n", *operations]
    rows = [f"| `{code}` | {kind.status} | {kind.title} |" for code, kind in PROBLEMS.items()]
    parts += [
        "## Errors\n",
        "`application/problem+json` as in RFC 9457: `type`, `title`, `status`, `detail` and a stable `code`. `429` and",
        "`503` responses have a `Retry-After` header.\n",
        "| code | status | meaning |",
        "|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any], schema: dict[str, Any]) -> str:
    summary = operation["summary"]
    told = summary if summary.endswith("?") else f"{summary}."
    lines = [f"#### `{method.upper()} {path}`\n", f"{told} {operation.get('description', '')}".strip(), ""]
    given = [_parameter(p) for p in operation.get("parameters", ()) if p["name"] not in _ALWAYS]
    if given:
        lines += ["| parameter | in | meaning |", "|---|---|---|", *given, ""]
    body = operation.get("requestBody")
    if body is not None:
        content, *others = body["content"].values()
        lines += [_fields(content["schema"], schema, "field of the form" if others else "field of the body"), ""]
        examples = _resolve(content["schema"], schema).get("examples", ())
        if examples:
            lines += ["For example:\n", *(f"    {json.dumps(example)}" for example in examples), ""]
    lines += [_answers(operation["responses"], schema), ""]
    return "\n".join(lines)


def _parameter(parameter: dict[str, Any]) -> str:
    told = parameter.get("description") or parameter["schema"].get("description") or ""
    name = f"`{parameter['name']}`" + (" (required)" if parameter.get("required") and parameter["in"] != "path" else "")
    return f"| {name} | {parameter['in']} | {told} |"


def _fields(reference: dict[str, Any], schema: dict[str, Any], title: str) -> str:
    model = _resolve(reference, schema)
    model = model.get("anyOf", [model])[0]  # the fields describe the other variants
    needed = model.get("required", [])
    rows = [f"| {title} | type | meaning |", "|---|---|---|"]
    for name, field in model["properties"].items():
        told = field.get("description", "") + (" Required." if name in needed and title != "field" else "")
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
        if model in _JOBS:
            told.append(f"`{status}` {_JOBS[model]}")
            continue
        fields = (
            ", ".join(f"`{name}`" for name in _resolve(shape["schema"], schema).get("properties", ())) if model else ""
        )
        told.append(f"`{status}` {fields or kind or responses[status]['description']}")
    return f"Returns {'; '.join(told)}. Errors: {', '.join(bad)}."


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
