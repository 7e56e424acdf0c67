"""Who is calling, and what that caller may do."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from .context import ContextDep, ServiceContext
from .cookies import COOKIE
from .hosts import is_own_origin
from .problems import HttpProblem
from .settings import Settings
from .store import InvalidToken
from .store.tokens import digest

#: Where a request's scope tells limits of its token: statuses do not, as pages answer a wrong one by the way to /login.
CHECKED = "deuteron.checked-token"
# Where a request keeps its caller: the token of one is looked up once.
_CALLER = "deuteron.caller"
_IMPLIED = {"admin": {"read", "submit", "worker", "admin"}, "submit": {"read"}, "worker": {"read"}}
_BEARER = HTTPBearer(
    auto_error=False,
    description="A token made by `deuteron token create`. Not needed on a single-user service (see /healthz).",
)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: ``id`` separates the Idempotency-Keys of different callers."""

    id: str
    name: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether one of its scopes is ``scope`` or implies it."""
        return any(scope == own or scope in _IMPLIED.get(own, ()) for own in self.scopes)


SINGLE_USER = Principal("single-user", "single user", frozenset({"admin"}))
_INTERNAL = Principal("embedded-worker", "embedded worker", frozenset({"worker"}))


@dataclass(frozen=True, slots=True)
class CheckedToken:
    """What a request's scope says under :data:`CHECKED`, once a token was looked up for it."""

    digest: str
    is_good: bool


def identify(request: Request, context: ServiceContext, secret: str | None) -> Principal:
    """The caller of a request.

    Raises:
        HttpProblem: 401, no token where one is required.
        InvalidToken: the token is unknown, expired or revoked.
    """
    if not context.settings.requires_tokens:
        return SINGLE_USER
    secret = secret or _cookie(request, context.settings)
    if not secret:
        raise HttpProblem(
            401,
            "token-required",
            "this service requires a bearer token",
            hint="send Authorization: Bearer <token>; `deuteron token create` makes one on the server",
            headers={"WWW-Authenticate": "Bearer"},
        )
    try:
        principal = _find(context, secret)
    except InvalidToken:
        request.scope[CHECKED] = CheckedToken(digest(secret), is_good=False)
        raise
    request.scope[CHECKED] = CheckedToken(digest(secret), is_good=True)
    return principal


def _find(context: ServiceContext, secret: str) -> Principal:
    if hmac.compare_digest(secret.encode(), context.internal_token.encode()):
        return _INTERNAL
    with context.store.read() as tx:
        token = tx.tokens.check(secret)
    return Principal(token.id, token.name, token.scopes)


def _cookie(request: Request, settings: Settings) -> str | None:
    # The pages' cookie must not let another site act: it counts for reading, and for writing only when
    # the browser says that the request comes from our own page.
    if request.method not in ("GET", "HEAD") and not is_own_origin(request.scope, settings):
        return None
    return request.cookies.get(COOKIE)


_guards: dict[Callable[..., object], str] = {}


def needs(scope: str) -> Callable[..., Awaitable[Principal]]:
    """A dependency that admits callers with ``scope``."""

    async def admitted(
        request: Request,
        context: ContextDep,
        credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
    ) -> Principal:
        return await _admit(request, context, credentials, scope)

    _guards[admitted] = scope
    return admitted


def scope_of(dependency: Callable[..., object] | None) -> str | None:
    """The scope of a dependency that :func:`needs` made; None of any other."""
    return _guards.get(dependency) if dependency is not None else None


async def admit(request: Request, context: ServiceContext, scope: str) -> Principal:
    """The caller of a request, which must have ``scope``.

    Raises:
        HttpProblem: 401, no token where one is required; 403, one without the scope.
        InvalidToken: the token is unknown, expired or revoked.
    """
    return await _admit(request, context, await _BEARER(request), scope)


async def is_still_admitted(request: Request, context: ServiceContext, scope: str) -> bool:
    """Whether a caller who was admitted would be again: tokens expire and are revoked while long answers go on."""
    request.scope.pop(_CALLER, None)
    try:
        await admit(request, context, scope)
    except (HttpProblem, InvalidToken):
        return False
    return True


async def _admit(
    request: Request, context: ServiceContext, credentials: HTTPAuthorizationCredentials | None, scope: str
) -> Principal:
    principal: Principal | None = request.scope.get(_CALLER)
    if principal is None:
        principal = SINGLE_USER
        if context.settings.requires_tokens:
            secret = credentials.credentials if credentials else None
            principal = await to_thread.run_sync(identify, request, context, secret)
        request.scope[_CALLER] = principal
    if not principal.may(scope):
        raise HttpProblem(
            403,
            "scope-missing",
            f"the token {principal.name!r} has the scopes {', '.join(sorted(principal.scopes))}; this needs {scope!r}",
            hint=f"deuteron token create --scope {scope}",
        )
    return principal


Reader = Annotated[Principal, Depends(needs("read"))]
Submitter = Annotated[Principal, Depends(needs("submit"))]
WorkerPrincipal = Annotated[Principal, Depends(needs("worker"))]
Admin = Annotated[Principal, Depends(needs("admin"))]
