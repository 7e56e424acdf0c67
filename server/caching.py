"""Which caches may keep an answer of the API: said in one place, because it depends on whether tokens are asked for."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .settings import Settings

#: What lies under such an address is never something else.
FOR_EVER = "max-age=31536000, immutable"
#: Kept, but never used without asking again. What says nothing else is this: caches may guess how long other answers
#: are good for, such as that there is no job of a name.
ASK_AGAIN = "no-cache"
#: Secrets.
NOT_AT_ALL = "no-store"

_WHO = ("private", "public", "no-store")


def cache_control(said: str | None, *, with_tokens: bool) -> str:
    """The header of an answer whose resource ``said`` how long it is good for, if anything: where there are tokens it
    is for the one who showed one; elsewhere anybody may pass it on, such as a CDN. A resource that says itself who may
    keep it has the last word."""
    lasting = said or ASK_AGAIN
    if any(word.strip() in _WHO for word in lasting.split(",")):
        return lasting
    return f"{'private' if with_tokens else 'public'}, {lasting}"


class CacheControl:
    """Puts :func:`cache_control` on every answer of the API, errors included."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.with_tokens = settings.requires_tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
            return

        async def saying_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Cache-Control"] = cache_control(headers.get("Cache-Control"), with_tokens=self.with_tokens)
            await send(message)

        await self.app(scope, receive, saying_send)
