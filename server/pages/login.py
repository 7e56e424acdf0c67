"""/login: a browser trades a token for a cookie, so that pages work where tokens are required."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from deuteron.compiler.errors import DeuteronError

from ..auth import identify
from ..context import ContextDep
from ..cookies import COOKIE
from ..hosts import is_over_tls, refuse_foreign_pages
from ..problems import HttpProblem
from .html import Child, tag
from .layout import page

router = APIRouter(include_in_schema=False)

_WEEK_S = 7 * 86400
# A form has one token. Whoever sends it has shown none yet: what megabytes hold is neither kept nor read.
_MOST_FORM_BYTES = 4096


@router.get("/login")
def login_page() -> Response:
    return _form()


@router.post("/login")
async def login(request: Request, context: ContextDep) -> Response:
    refuse_foreign_pages(request.scope, context.settings)
    fields = parse_qs((await _beginning(request)).decode("utf-8", "replace"))
    secret = (fields.get("token") or [""])[0].strip()
    try:
        identify(request, context, secret)
    except (DeuteronError, HttpProblem) as error:
        detail = error.detail if isinstance(error, HttpProblem) else error.message
        return _form(tag("p", detail, class_="error", role="alert"), status=401)
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=_WEEK_S,
        httponly=True,
        samesite="strict",
        secure=is_over_tls(request.scope, context.settings),
    )
    return response


async def _beginning(request: Request) -> bytes:
    kept = b""
    async for piece in request.stream():
        kept += piece[: _MOST_FORM_BYTES - len(kept)]
    return kept


@router.post("/logout")
def logout(request: Request, context: ContextDep) -> Response:
    refuse_foreign_pages(request.scope, context.settings)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


def _form(*message: Child, status: int = 200) -> Response:
    return page(
        "Sign in",
        tag("h1", "Sign in"),
        message,
        tag(
            "form",
            tag("label", "Token", for_="token"),
            tag(
                "input",
                id="token",
                name="token",
                type="password",
                required=True,
                autocomplete="off",
            ),
            tag("button", "Sign in", type="submit"),
            tag(
                "p",
                tag("code", "deuteron token create NAME --scope read"),
                " makes one.",
                class_="muted",
            ),
            method="post",
            action="/login",
            class_="card",
        ),
        status=status,
    )
