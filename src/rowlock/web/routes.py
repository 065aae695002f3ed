"""Routes of ours: FastAPI without what the layers around it do already."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp


class Routes(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        """Without the layer that answers faults in words of its own: the shield does."""
        return ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers=self.exception_handlers)
