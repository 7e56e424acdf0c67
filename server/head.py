"""HEAD for every address that has GET: the same status and headers, and no body."""

from __future__ import annotations

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _Answered(BaseException):
    """The headers are out: nothing more is to be sent. No Exception, as those have handlers that would report it."""


class HeadAsGet:
    """Answers HEAD with what GET would answer, without its body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        answered = False

        async def send_headers(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                await send(message)
            elif not answered:
                answered = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                if message.get("more_body"):
                    raise _Answered
            elif message.get("more_body"):
                raise _Answered

        with suppress(_Answered):
            await self.app({**scope, "method": "GET"}, receive, send_headers)
