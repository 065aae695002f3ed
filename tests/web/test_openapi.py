"""The OpenAPI description is complete and correct."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute

from rowlock.http.asgi import Api
from rowlock.http.middleware.auth import OPEN
from rowlock.http.problem import PROBLEMS
from rowlock.management import ManagementService
from rowlock.management.endpoint import endpoints_of
from rowlock.management.schemas.requests import (
    DeadLettersRequest,
    EnqueueRequest,
    ImportNamedRequest,
    RetryRequest,
    SyncRequest,
)
from web.site import Site

FIXED = {
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "POST /api/v1/queue/enqueue",
    "GET /api/v1/queue",
    "GET /api/v1/queue/{job_id}",
    "GET /api/v1/queue/dead-letter",
    "GET /api/v1/queue/stats",
    "POST /api/v1/queue/{job_id}/retry",
    "POST /api/v1/queue/{job_id}/cancel",
    "POST /api/v1/queue/dead-letter/retry",
    "POST /api/v1/queue/dead-letter/discard",
    "POST /api/v1/imports/xlsx",
    "POST /api/v1/imports/xlsx/upload",
    "POST /api/v1/imports/csv/upload",
    "GET /api/v1/import-jobs",
    "GET /api/v1/import-jobs/{import_id}",
    "GET /api/v1/import-jobs/{import_id}/errors",
    "GET /api/v1/import-jobs/{import_id}/errors.csv",
    "POST /api/v1/import-jobs/{import_id}/resume",
    "POST /api/v1/import-jobs/{import_id}/cancel",
    "GET /api/v1/events",
    "GET /api/v1/sync",
    "GET /api/v1/sync/{integration}/stats",
    "GET /api/v1/sync/{integration}/monitor",
    "POST /api/v1/sync/{integration}/{operation}",
    "GET /api/admin/queue/health",
    "GET /api/admin/queue/failures",
    "POST /api/admin/queue/retry",
    "POST /api/admin/queue/prune",
}


async def schema(site: Site) -> dict[str, Any]:
    return dict((await site.get("/openapi.json", "viewer")).json())


async def test_every_route_is_described(site: Site) -> None:
    told = {f"{method.upper()} {path}" for path, each in (await schema(site))["paths"].items() for method in each}
    routes = [route for route in Api(site.app).routes.routes if isinstance(route, APIRoute)]
    assert told == {f"{method} {route.path_format}" for route in routes for method in route.methods}
    assert told >= FIXED


BY_HAND = {  # files, text, streams and probes
    "GET /api/v1/events",
    "GET /api/v1/import-jobs/{import_id}/errors.csv",
    "GET /api/v1/import-types/{name}/template.csv",
    "GET /healthz",
    "GET /metrics",
    "GET /openapi.json",
    "GET /readyz",
    "POST /api/v1/imports/csv/upload",
    "POST /api/v1/imports/xlsx/upload",
}


async def test_every_endpoint_is_a_route_as_declared_and_every_other_route_is_known(site: Site) -> None:
    described = {
        f"{method.upper()} {path}": operation
        for path, methods in (await schema(site))["paths"].items()
        for method, operation in methods.items()
    }
    declared = endpoints_of(ManagementService)
    routes = {f"{each.method} {each.path.replace(':path', '')}": each for each in declared.values()}
    assert len(routes) == len(declared)
    assert described.keys() == routes.keys() | BY_HAND
    for name, endpoint in routes.items():
        assert described[name]["summary"] == endpoint.summary
        assert described[name]["x-role"] == endpoint.role
        assert described[name]["tags"] == [endpoint.tag]
        assert str(endpoint.status) in described[name]["responses"]


async def test_every_error_is_described(site: Site) -> None:
    for path, operations in (await schema(site))["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            if path in OPEN:
                assert operation["security"] == []
                continue
            wanted = {"401", "403", "422", "429", "500", "503"} | ({"413", "415"} if method == "post" else set())
            assert wanted <= answers.keys(), (method, path)
            for status, answer in answers.items():
                if status >= "400":
                    assert list(answer["content"]) == ["application/problem+json"], (method, path, status)
                    assert answer["description"]
            assert operation["summary"]
            assert operation["x-role"] in ("viewer", "operator", "admin")


async def test_every_reference_leads_somewhere(site: Site) -> None:
    told = await schema(site)
    names = set(re.findall(r"#/components/schemas/(\w+)", str(told)))
    assert names <= told["components"]["schemas"].keys()
    assert "HTTPValidationError" not in told["components"]["schemas"]


@pytest.mark.parametrize("model", [EnqueueRequest, DeadLettersRequest, RetryRequest, ImportNamedRequest, SyncRequest])
def test_examples_are_valid(model: Any) -> None:
    for example in model.model_config["json_schema_extra"]["examples"]:
        model.model_validate(example)


def test_every_problem_says_what_it_means() -> None:
    assert len(PROBLEMS) == len({kind.title for kind in PROBLEMS.values()})
    for code, kind in PROBLEMS.items():
        assert re.fullmatch("[a-z_]+", code)
        assert 400 <= kind.status < 600
        assert kind.title.endswith(".")
