"""The one cookie that this service knows, found without Python's reader of cookies."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

#: Holds the token of a browser that signed in at /login.
COOKIE = "deuteron_token"

# In characters as tokens have them, of any length that one could have.
_OWN = re.compile(rf"{COOKIE}=[\w.~-]{{1,512}}".encode())


def own_cookie(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """``name=value`` of the service's own cookie; of several the last one, as elsewhere."""
    found = None
    for name, value in headers:
        if name == b"cookie":
            for part in map(bytes.strip, value.split(b";")):
                found = part if _OWN.fullmatch(part) else found
    return found


class OwnCookie:
    """Takes every other cookie out of requests. FastAPI reads all of them for every route, in the event loop, and
    older http.cookies (CVE-2024-7592) take 20 s for 60 KB of backslashes. Those of other programs on this host, which
    browsers send to all of its ports, are none of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and any(name == b"cookie" for name, _ in scope["headers"]):
            own, others = own_cookie(scope["headers"]), [item for item in scope["headers"] if item[0] != b"cookie"]
            scope = {**scope, "headers": others if own is None else [*others, (b"cookie", own)]}
        await self.app(scope, receive, send)
