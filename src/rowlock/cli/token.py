"""`rowlock token`: create, list and revoke tokens of the HTTP API."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rowlock.cli import options
from rowlock.cli.errors import UsageError
from rowlock.cli.management import works

if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.app import Rowlock
    from rowlock.cli.output import Output
    from rowlock.storage.access import TokenRecord

commands = typer.Typer(no_args_is_help=True, help="Tokens of the HTTP API: create, list, revoke.")

_EXPIRES_DAYS = 90.0
_DAY_SECONDS = 86_400.0


class RoleName(StrEnum):
    viewer = "viewer"
    operator = "operator"
    admin = "admin"


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="token")


@commands.command(
    help=options.examples(
        "Create a token. It is printed once and stored hashed, so it cannot be shown again.",
        "rowlock token create --name deploy --role operator",
        "rowlock token create --name acme --company acme --expires-days 7",
        "rowlock token create --name prometheus --never > /run/secrets/rowlock-token",
    )
)
@works(create=True)
async def create(
    app: Rowlock,
    out: Output,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="A name for the person or program that uses it.")],
    role: Annotated[
        RoleName,
        typer.Option(
            help="viewer can read; operator can also enqueue, retry, cancel and pause; admin can do everything."
        ),
    ] = RoleName.viewer,
    company: Annotated[
        str | None, typer.Option("--company", metavar="ID", help="Limit the token to the jobs of this company.")
    ] = None,
    expires_days: Annotated[
        float | None,
        typer.Option(min=0.001, max=36_500, help="Days until expiry (default: 90).", show_default=False),
    ] = None,
    never: Annotated[bool, typer.Option("--never", help="The token does not expire.")] = False,
) -> None:
    from rowlock.control import tokens
    from rowlock.jobs.registry import checked_name
    from rowlock.management.schemas.access import CreatedTokenSchema
    from rowlock.management.schemas.base import iso
    from rowlock.storage.access import Role
    from rowlock.tokens import new_token

    if never and expires_days is not None:
        raise UsageError("--never and --expires-days contradict each other: remove one of them")
    checked_name(name, "token")
    if company is not None:
        checked_name(company, "company")
    seconds = None if never else (expires_days or _EXPIRES_DAYS) * _DAY_SECONDS
    text, token = new_token(name, Role(role), company, seconds)
    made = await tokens.add(app.store, token)
    out.tell(CreatedTokenSchema.of(made, token=text), text)
    ends = "does not expire" if made.expires_at is None else f"expires at {iso(made.expires_at)}"
    out.note(f"this is the only time that the token is shown; it has the role {made.role.value} and {ends}")


@commands.command(
    "list",
    help=options.examples(
        "List tokens, including expired and revoked ones, without the tokens themselves.",
        "rowlock token list",
        "rowlock token list --json",
    ),
)
@works()
async def list_(app: Rowlock, out: Output) -> None:
    from rowlock.control import tokens
    from rowlock.management.schemas.access import TokenSchema, TokensSchema

    found, now = await tokens.listed(app.store), await app.store.now()
    if out.as_json:
        out.json(TokensSchema(tokens=[TokenSchema.of(token) for token in found]))
        return
    columns = ("id", "name", "role", "company_id", "created_at", "expires_at", "last_used_at")
    rows = [[*(getattr(token, column) for column in columns), _state(token, now)] for token in found]
    heads = ("id", "name", "role", "company", "created", "ends", "last used", "state")
    out.table(heads, rows, "no tokens: create one with `rowlock token create`")


@commands.command(
    help=options.examples(
        "Revoke a token. Servers notice within seconds.",
        "rowlock token revoke 01932c07-2ab0-7000-8000-3f6c1e2d4b5a",
    )
)
@works()
async def revoke(
    app: Rowlock,
    out: Output,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the token, not the token itself.")],
) -> None:
    from rowlock.control import tokens
    from rowlock.errors import TokenNotFound
    from rowlock.management.schemas.access import TokenSchema
    from rowlock.tokens import PREFIX

    if not await tokens.revoke(app.store, id):
        shown = "that, which looks like a token, not an id" if id.startswith(PREFIX) else id
        raise TokenNotFound(f"no token has the id {shown}; see `rowlock token list`")
    (revoked,) = [token for token in await tokens.listed(app.store) if token.id == id.lower()]
    out.tell(TokenSchema.of(revoked), f"{revoked.id}  {revoked.name} is revoked")


def _state(token: TokenRecord, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "good"
