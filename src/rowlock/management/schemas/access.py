"""Tokens of the HTTP API, as `rowlock token` shows them."""

from __future__ import annotations

from typing import Any, Self

from rowlock.management.schemas.base import Schema, Time
from rowlock.storage.access import Role, TokenRecord


class TokenSchema(Schema):
    """A token, without its secret, which is not stored."""

    id: str
    name: str
    role: Role
    company_id: str | None
    created_at: Time
    expires_at: Time | None
    last_used_at: Time | None
    revoked_at: Time | None

    @classmethod
    def of(cls, record: TokenRecord, **more: Any) -> Self:
        return cls(
            id=record.id,
            name=record.name,
            role=record.role,
            company_id=record.company_id,
            created_at=record.created_at,
            expires_at=record.expires_at,
            last_used_at=record.last_used_at,
            revoked_at=record.revoked_at,
            **more,
        )


class _SecretSchema(Schema):
    token: str


class CreatedTokenSchema(TokenSchema, _SecretSchema):
    """A new token, with its secret."""


class TokensSchema(Schema):
    tokens: list[TokenSchema]
