"""Cursor pages: opaque, and stable while rows arrive."""

from __future__ import annotations

import base64
from typing import Annotated

from fastapi import Query, Request, Response

from ..problems import HttpProblem

Cursor = Annotated[
    str | None,
    Query(
        description="The `next` of the page before; leave out for the first page.",
        json_schema_extra={"pattern": "^[A-Za-z0-9_-]+$"},
    ),
]
Limit = Annotated[int, Query(ge=1, le=500, description="Entries on a page.")]


def encode_cursor(position: str | int) -> str:
    return base64.urlsafe_b64encode(str(position).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """Raises:
    HttpProblem: 400, this service did not make the cursor.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        position = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError:  # not Base64, not ASCII, or not UTF-8 inside
        raise _bad(cursor) from None
    if not position or "\0" in position:
        raise _bad(cursor)
    return position


def decode_number(cursor: str | None) -> int | None:
    """The number in a cursor, None for the first page.

    Raises:
        HttpProblem: 400, this service did not make the cursor.
    """
    if cursor is None:
        return None
    text = decode_cursor(cursor)
    if not text.isdecimal() or len(text) > 18:
        raise _bad(cursor)
    return int(text)


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """Announce the next page in a Link header (RFC 8288)."""
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'


def _bad(cursor: str) -> HttpProblem:
    return HttpProblem(
        400,
        "bad-cursor",
        f"cursor {cursor[:40]!r} is not one that this service made",
        hint="leave it out to start from the first page",
    )
