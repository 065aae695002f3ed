"""Authentication, roles and rate limits. Every route needs a token, except the probes, sign-in, sign-out and assets."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rowlock.app import Rowlock
from rowlock.http.middleware.rate_limits import Rates
from rowlock.http.middleware.session_cookie import from_here, session_of
from rowlock.http.middleware.tokens import Tokens
from rowlock.http.problem import Problem
from rowlock.jobs.reader import Reader
from rowlock.management import ManagementService
from rowlock.storage.access import Role, TokenRecord

OPEN = ("/healthz", "/readyz")
SIGN_IN, SIGN_OUT, ASSETS = "/sign-in", "/sign-out", "/assets/"
CALLER = "rowlock.caller"
_GUESS_BURST_SECONDS = 20.0
_SLOW_SECONDS = 0.1
_SLOWED_MAX = 20


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: its token, and the management service scoped to the token's company."""

    token: TokenRecord
    management: ManagementService


class Auth:
    """Middleware that adds the caller to a request's scope; raises Problem with 401, 403 or 429."""

    def __init__(self, inner: ASGIApp, app: Rowlock) -> None:
        self._inner = inner
        self._app = app
        settings = app.settings
        self.tokens = Tokens(settings.http_token_seconds)
        self._rates = Rates(settings.http_requests_per_second)
        self._guesses = Rates(settings.http_guesses_per_minute / 60, _GUESS_BURST_SECONDS)
        self._slow = asyncio.Lock()
        self._slowed = 0
        self._reader: Reader | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_open(path_of(scope)):
            token = await self._token(scope)
            wait = self._rates.wait_seconds(token.id)
            if wait:
                raise _too_many(
                    f"the limit of this token is {self._app.settings.http_requests_per_second:,} requests per second",
                    wait,
                )
            self._rates.take(token.id)
            self.tokens.used(self._app.store, token.id)
            if self._reader is None:
                self._reader = Reader(self._app.store)
            scope[CALLER] = Caller(token, ManagementService(self._app, token.company_id, self._reader))
        await self._inner(scope, receive, send)

    async def _token(self, scope: Scope) -> TokenRecord:
        given = bearer(scope)
        if given is None:
            given = session_of(scope)
            if given is None:
                raise Problem(
                    "unauthorized", "send `Authorization: Bearer rlk_…`; `rowlock token create` creates a token"
                )
            if not from_here(scope):
                raise Problem(
                    "cross_site", "this request was sent from another site with the session of a signed-in user"
                )
        return await self.known(given, scope)

    async def known(self, given: str, scope: Scope) -> TokenRecord:
        """Return the record of a valid token; raises Problem for others, and slows down addresses that guess."""
        known = self.tokens.trusted(given)
        if known is not None:
            return known
        address = (scope.get("client") or ("?",))[0]
        wait = self._guesses.wait_seconds(address)
        # Guesses slow down the whole address, except tokens that were valid here before.
        if wait and not self.tokens.remembered(given):
            await self._slow_down()
        found = await self.tokens.look_up(self._app.store, given)
        if found is not None:
            return found
        if wait:
            raise _too_many("too many requests with unknown tokens came from this address", wait)
        self._guesses.take(address)
        raise Problem("unauthorized", "this token is unknown, expired or revoked")

    async def _slow_down(self) -> None:
        """Wait 0.1 s, one request after the other; raises Problem (429) if 20 are waiting."""
        if self._slowed >= _SLOWED_MAX:
            raise _too_many("too many unknown tokens are being checked", 1.0)
        self._slowed += 1
        try:
            async with self._slow:
                await asyncio.sleep(_SLOW_SECONDS)
        finally:
            self._slowed -= 1


def is_open(path: str) -> bool:
    """Return whether a path needs no token: probes, sign-in, sign-out, assets."""
    return path in OPEN or path in (SIGN_IN, SIGN_OUT) or path.startswith(ASSETS)


def path_of(scope: Scope) -> str:
    """Return the request's path below the prefix that the application is mounted under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def bearer(scope: Scope) -> str | None:
    """Return the token of the Authorization header, or None."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer" and token.strip():
                return str(token.strip().decode("latin-1"))
    return None


def _too_many(detail: str, wait_seconds: float) -> Problem:
    return Problem("too_many_requests", detail, {"retry-after": str(max(1, math.ceil(wait_seconds)))})


# -- dependencies of routes ------------------------------------------------------------------------


class Needs:
    """A dependency that returns the caller; raises Problem (403) for a lower role and, with `fleet`, company tokens."""

    def __init__(self, role: Role, *, fleet: bool = False) -> None:
        self.role = role
        self.fleet = fleet

    async def __call__(self, request: Request) -> Caller:
        caller: Caller = request.scope[CALLER]
        if not caller.token.role.covers(self.role):
            raise Problem("forbidden", f"this requires the role {self.role}; the token has {caller.token.role}")
        if self.fleet and caller.token.company_id is not None:
            raise Problem("company_scope", "this concerns all companies, and the token is for one company")
        return caller


Viewer = Annotated[Caller, Depends(Needs(Role.VIEWER))]
Operator = Annotated[Caller, Depends(Needs(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(Needs(Role.ADMIN))]
FleetViewer = Annotated[Caller, Depends(Needs(Role.VIEWER, fleet=True))]
FleetOperator = Annotated[Caller, Depends(Needs(Role.OPERATOR, fleet=True))]
FleetAdmin = Annotated[Caller, Depends(Needs(Role.ADMIN, fleet=True))]
