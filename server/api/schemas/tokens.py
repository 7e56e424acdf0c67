"""Tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from deuteron.compiler.printable import LINE_PATTERN

from ...store import SCOPES
from .common import JSON_NUMBER, Body

Scope = Literal["read", "submit", "worker", "admin"]


class TokenBody(Body):
    name: Annotated[str, Field(min_length=1, max_length=100, json_schema_extra={"pattern": LINE_PATTERN})]
    scopes: list[Scope] = Field(min_length=1, examples=[list(SCOPES[:2])])
    expires_in_seconds: Annotated[int, Field(ge=1, le=10 * 365 * 86400), JSON_NUMBER] | None = Field(
        None, description="Lifetime; null never expires."
    )


class TokenAnswer(BaseModel):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewTokenAnswer(TokenAnswer):
    token: str = Field(description="The secret. It is shown only here.")


class TokenList(BaseModel):
    tokens: list[TokenAnswer]
