"""A fast route class for POSTs that take a body and, at most, names in the path.

FastAPI documents these routes as usual. Its dependency resolution is skipped, because it takes longer than the rest of
an enqueue.
"""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from rowlock.http.middleware.auth import Needs


class Posted(APIRoute):
    """A route whose endpoint takes the request, the caller, the validated body, and the names in the path."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._needs = next(d.call for d in self.dependant.dependencies if isinstance(d.call, Needs))
        assert self.body_field is not None
        self._model: type[BaseModel] = self.body_field.field_info.annotation  # type: ignore[assignment]  # of the body
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        caller = await self._needs(request)
        try:
            given = self._model.model_validate_json(scope["rowlock.body"])
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in found]) from None
        response = await self.endpoint(request, caller, given, **scope["path_params"])
        await response(scope, receive, send)
