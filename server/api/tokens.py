"""/v1/tokens: made, listed and revoked by administrators."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fastapi import Response, status

from ..auth import Admin
from ..caching import NOT_AT_ALL
from ..context import ContextDep
from ..store import Token
from .routes import make_router
from .schemas.tokens import NewTokenAnswer, TokenAnswer, TokenBody, TokenList

router = make_router("tokens", "/v1/tokens")


@router.post("", status_code=status.HTTP_201_CREATED, summary="Make a token")
def create_token(body: TokenBody, context: ContextDep, _admin: Admin, response: Response) -> NewTokenAnswer:
    """The secret is in this answer and nowhere else: the service keeps only its sha256."""
    response.headers["Cache-Control"] = NOT_AT_ALL
    expires_at = None
    if body.expires_in_seconds is not None:
        expires_at = datetime.now(UTC) + timedelta(seconds=body.expires_in_seconds)
    with context.store.write() as tx:
        token, secret = tx.tokens.create(body.name, body.scopes, expires_at=expires_at)
    return NewTokenAnswer(**token_answer(token).model_dump(), token=secret)


@router.get("", summary="List tokens")
def list_tokens(context: ContextDep, _admin: Admin) -> TokenList:
    with context.store.read() as tx:
        return TokenList(tokens=[token_answer(token) for token in tx.tokens.all()])


@router.delete("/{token_id}", summary="Revoke a token")
def revoke_token(token_id: str, context: ContextDep, _admin: Admin) -> TokenAnswer:
    """The token ends now. Revoking again changes nothing."""
    with context.store.write() as tx:
        return token_answer(tx.tokens.revoke(token_id))


def token_answer(token: Token) -> TokenAnswer:
    return TokenAnswer(
        id=token.id,
        name=token.name,
        scopes=sorted(token.scopes),
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
