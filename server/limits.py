"""Limits at the door: body size while it streams in, request rate per caller, and the Host header."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import HttpProblem, problem_response
from .settings import Settings

UPLOAD_PATHS = "/v1/worker/"
_UNLIMITED_PATHS = ("/healthz", "/readyz", "/static/")
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}
_MAX_CALLERS = 10_000
_BURST_SECONDS = 5.0


class BodyLimit:
    """Refuses bodies above the limit: by Content-Length at once, chunked ones when they cross it."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_upload = str(scope["path"]).startswith(UPLOAD_PATHS)
        limit = self.settings.max_upload_bytes if is_upload else self.settings.max_body_bytes
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            too_large = _too_large(limit)
            response = problem_response(
                413,
                too_large.slug,
                too_large.detail,
                hint=too_large.hint,
                headers={"Connection": "close"},
            )
            await response(scope, receive, send)
            return
        received = 0

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        await self.app(scope, counting_receive, send)


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem(
        413,
        "body-too-large",
        f"the body is larger than {limit} bytes",
        hint="DEUTERON_MAX_BODY_BYTES on the server raises the limit",
    )


class RateLimit:
    """A token bucket per bearer token, or per address for callers without one.

    The buckets live in this process: with several server processes each allows the full rate.
    """

    def __init__(self, app: ASGIApp, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self.rate = settings.rate_per_minute / 60.0
        self.burst = max(1.0, self.rate * _BURST_SECONDS)
        self.clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.rate == 0 or str(scope["path"]).startswith(_UNLIMITED_PATHS):
            await self.app(scope, receive, send)
            return
        wait = self._take(_caller(scope))
        if wait > 0:
            seconds = max(1, round(wait + 0.5))
            response = problem_response(
                429,
                "rate-limited",
                f"more than {self.rate * 60:.0f} requests a minute",
                hint=f"try again in {seconds} s",
                headers={"Retry-After": str(seconds)},
            )
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _take(self, caller: str) -> float:
        """Use one request of the caller's allowance; seconds to wait when there is none."""
        now = self.clock()
        level, seen = self._buckets.pop(caller, (self.burst, now))
        level = min(self.burst, level + (now - seen) * self.rate)
        allowed = level >= 1.0
        self._buckets[caller] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - level) / self.rate


def _caller(scope: Scope) -> str:
    authorization = Headers(scope=scope).get("authorization")
    if authorization:
        return hashlib.sha256(authorization.encode()).hexdigest()
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


class LoopbackOnly:
    """While no token is required, answers only requests that were addressed to this machine.

    A web page elsewhere can make a browser send requests to 127.0.0.1. Its own host name (DNS rebinding)
    or its Origin (cross-site POST) gives it away.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.enabled = not settings.requires_tokens
        self.allowed = {*_LOOPBACK_NAMES, settings.host.strip("[]")}
        if settings.public_url:
            self.allowed.add(urlsplit(settings.public_url).hostname or "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.enabled:
            headers = Headers(scope=scope)
            host, origin = headers.get("host", "localhost"), headers.get("origin")
            foreign = urlsplit(f"//{host}").hostname not in self.allowed
            if foreign or (origin and urlsplit(origin).netloc != host):
                response = problem_response(
                    403,
                    "foreign-host",
                    f"this single-user service does not answer requests for {host} from {origin or 'there'}",
                    hint="use http://127.0.0.1, or set DEUTERON_AUTH=tokens",
                )
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)
