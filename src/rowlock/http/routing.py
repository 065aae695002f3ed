"""FastAPI without the middleware that Rowlock's own layers replace."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp


class Routes(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        """Leave out ServerErrorMiddleware: the error boundary answers unexpected errors."""
        return ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers=self.exception_handlers)
