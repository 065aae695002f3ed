"""`rowlock token`, run for real on SQLite: shown once, stored hashed, expired or revoked."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import pytest
from test_cli import Cli, application, cli

from rowlock.control import tokens
from rowlock.storage.access import Role, TokenRecord
from rowlock.tokens import digest

__all__ = ["cli"]

KEYS = {"id", "name", "role", "companyId", "createdAt", "expiresAt", "lastUsedAt", "revokedAt"}


def stored(token: str) -> TokenRecord | None:
    """What the store knows of a good token."""

    async def look() -> TokenRecord | None:
        async with application:
            return await tokens.find(application.store, digest(token))

    return asyncio.run(look())


def test_a_token_is_printed_alone_and_is_good(cli: Cli) -> None:
    out = cli("token", "create", "--name", "deploy", "--role", "operator")
    token = out.strip()
    assert out == f"{token}\n"
    assert token.startswith("rlk_")
    assert "only time that the token is shown" in cli.err
    assert token not in cli.err
    found = stored(token)
    assert found is not None
    assert (found.name, found.role, found.company_id) == ("deploy", Role.OPERATOR, None)


def test_a_token_looks_only_and_ends_after_90_days_unless_told(cli: Cli) -> None:
    made = cli.json("token", "create", "--name", "page")
    assert set(made) == KEYS | {"token"}
    assert made["role"] == "viewer"
    ends, begins = (datetime.fromisoformat(made[key]) for key in ("expiresAt", "createdAt"))
    assert (ends - begins).total_seconds() == 90 * 86_400


def test_a_token_ends_when_told(cli: Cli) -> None:
    made = cli.json("token", "create", "--name", "short", "--company", "acme", "--expires-days", "0.5")
    ends, begins = (datetime.fromisoformat(made[key]) for key in ("expiresAt", "createdAt"))
    assert (ends - begins).total_seconds() == 43_200
    assert made["companyId"] == "acme"
    assert cli.json("token", "create", "--name", "long", "--never")["expiresAt"] is None
    assert "does not expire" in cli.err


def test_tokens_are_listed_without_themselves(cli: Cli, tmp_path: Path) -> None:
    cli("migrate")
    assert cli("token", "list") == "no tokens: create one with `rowlock token create`\n"
    made = cli.json("token", "create", "--name", "deploy", "--role", "admin")
    token = made.pop("token")
    assert cli.json("token", "list") == {"tokens": [made]}
    listed = cli("token", "list")
    assert made["id"] in listed
    assert "good" in listed
    assert token not in listed + cli("token", "list", "--json")
    for file in tmp_path.glob("jobs.db*"):
        assert token.encode() not in file.read_bytes()


def test_a_token_is_revoked(cli: Cli) -> None:
    made = cli.json("token", "create", "--name", "deploy")
    assert cli("token", "revoke", made["id"]) == f"{made['id']}  deploy is revoked\n"
    assert stored(made["token"]) is None
    first = cli.json("token", "list")["tokens"][0]["revokedAt"]
    assert first is not None
    assert cli.json("token", "revoke", made["id"].upper())["revokedAt"] == first
    assert "revoked" in cli("token", "list")


def test_a_token_that_is_not_there(cli: Cli) -> None:
    token = cli.json("token", "create", "--name", "deploy")["token"]
    assert cli.json("token", "revoke", "nobody", code=1)["code"] == "token_not_found"
    assert cli.err == "error: no token has the id nobody; see `rowlock token list`\n"
    cli("token", "revoke", token, code=1)
    assert token not in cli.err
    assert stored(token) is not None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--name", ""), "token '': must be 1 to 200 printable characters"),
        (("--name", "x", "--company", "a\nb"), "must be 1 to 200 printable characters"),
        (("--name", "x", "--never", "--expires-days", "3"), "contradict each other"),
        (("--name", "x", "--expires-days", "0"), "Invalid value for '--expires-days'"),
        (("--name", "x", "--role", "root"), "Invalid value for '--role'"),
        ((), "Missing option '--name'"),
    ],
)
def test_tokens_that_cannot_be_made(cli: Cli, options: tuple[str, ...], told: str) -> None:
    cli("migrate")
    cli("token", "create", *options, code=2)
    assert told in cli.err
    assert cli.json("token", "list") == {"tokens": []}
