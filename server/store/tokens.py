"""Bearer tokens.

The secret is 32 random bytes, so its sha256 can be neither guessed nor found in a table; slow password
hashes defend secrets that people choose, and would add their cost to every request.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Row, insert, select, update

from ..models import TokenRow
from ..plausible import check_names
from .errors import InvalidToken, NotFound
from .records import Token

_TABLE = TokenRow.__table__
_PREFIX = "dtn_"

SCOPES = ("read", "submit", "worker", "admin")


def digest(secret: str) -> str:
    """What is stored of a token: its SHA-256, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens within one transaction."""

    connection: Connection

    def create(self, name: str, scopes: Iterable[str], *, expires_at: datetime | None = None) -> tuple[Token, str]:
        """A new token and its secret, which is not stored and cannot be shown again.

        Raises:
            SchemaError: the name would act on the terminals of those who read the list.
        """
        check_names("name", [name])
        secret = _PREFIX + secrets.token_urlsafe(32)
        ordered = [scope for scope in SCOPES if scope in set(scopes)]
        token = Token(str(uuid.uuid4()), name, frozenset(ordered), datetime.now(UTC), expires_at, None)
        self.connection.execute(
            insert(TokenRow).values(
                id=token.id,
                name=name,
                hash=digest(secret),
                scopes=" ".join(ordered),
                created_at=token.created_at,
                expires_at=expires_at,
            )
        )
        return token, secret

    def check(self, secret: str) -> Token:
        """The valid token with this secret.

        Raises:
            InvalidToken: unknown, expired or revoked; the message says which.
        """
        row = self.connection.execute(select(_TABLE).where(TokenRow.hash == digest(secret))).first()
        if row is None:
            raise InvalidToken(
                "the token is not known to this service",
                hint="create one with `deuteron token create` on the server",
            )
        token = _token(row)
        if token.revoked_at is not None:
            raise InvalidToken(
                f"the token {token.name!r} was revoked at {token.revoked_at:%Y-%m-%d %H:%M} UTC",
                hint="ask an administrator for a new one",
            )
        if token.expires_at is not None and token.expires_at <= datetime.now(UTC):
            raise InvalidToken(
                f"the token {token.name!r} expired at {token.expires_at:%Y-%m-%d %H:%M} UTC",
                hint="create a new one with `deuteron token create`",
            )
        return token

    def all(self) -> list[Token]:
        """All tokens, the revoked ones included, without their secrets."""
        query = select(_TABLE).order_by(TokenRow.created_at)
        return [_token(row) for row in self.connection.execute(query)]

    def revoke(self, token_id: str) -> Token:
        """End a token now. Revoking twice keeps the first time.

        Raises:
            NotFound: no token has this id.
        """
        self.connection.execute(
            update(TokenRow)
            .where(TokenRow.id == token_id, TokenRow.revoked_at.is_(None))
            .values(revoked_at=datetime.now(UTC))
        )
        row = self.connection.execute(select(_TABLE).where(TokenRow.id == token_id)).first()
        if row is None:
            raise NotFound(f"there is no token {token_id}", hint="GET /v1/tokens lists them")
        return _token(row)


def _token(row: Row[tuple[object, ...]]) -> Token:
    values = row._mapping
    return Token(
        id=values["id"],
        name=values["name"],
        scopes=frozenset(values["scopes"].split()),
        created_at=values["created_at"],
        expires_at=values["expires_at"],
        revoked_at=values["revoked_at"],
    )
