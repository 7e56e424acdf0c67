"""Limits at the door: size and speed of bodies, and requests per caller."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import CHECKED, CheckedToken
from .problems import HttpProblem, problem_response
from .settings import Settings
from .store.tokens import digest

_PROFILE = re.compile(r"/v1/worker/jobs/[^/]+/profile")
_UNLIMITED_PATHS = ("/healthz", "/readyz", "/static/")
_MAX_CALLERS = 10_000
_BURST_SECONDS = 5.0
#: Bytes a second that an upload must have on the average: else one that trickles in never ends.
LEAST_UPLOAD_RATE = 64 << 10

#: Wrong tokens of which an address is told in a burst, and of how many more each minute.
FAILURE_BURST = 20
FAILURES_PER_MINUTE = 20


class BodyLimit:
    """Refuses bodies that are too large (by Content-Length at once, chunked ones when they cross the limit) or that
    stop arriving. Profiles may be larger than others, and take longer as long as they keep coming."""

    def __init__(self, app: ASGIApp, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self.settings = settings
        self.clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_upload = scope["method"] == "PUT" and _PROFILE.fullmatch(scope["path"]) is not None
        limit = self.settings.max_upload_bytes if is_upload else self.settings.max_body_bytes
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            too_large = _too_large(limit, is_upload)
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
        patience = self.settings.body_seconds
        deadline = self.clock() + patience
        complete = False

        async def limited_receive() -> Message:
            nonlocal received, complete
            if complete:  # what comes now is the client's leaving, which may take as long as the answer
                return await receive()
            try:
                left = deadline + (received / LEAST_UPLOAD_RATE if is_upload else 0.0) - self.clock()
                async with asyncio.timeout(min(patience, max(0.0, left))):
                    message = await receive()
            except TimeoutError:
                raise _too_slow(patience) from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > limit:
                raise _too_large(limit, is_upload)
            return message

        await self.app(scope, limited_receive, send)


def _too_large(limit: int, is_upload: bool) -> HttpProblem:
    variable = "DEUTERON_MAX_UPLOAD_BYTES" if is_upload else "DEUTERON_MAX_BODY_BYTES"
    return HttpProblem(
        413,
        "body-too-large",
        f"the body is larger than {limit} bytes",
        hint=f"{variable} on the server raises the limit",
        headers={"Connection": "close"},
    )


def _too_slow(patience: float) -> HttpProblem:
    return HttpProblem(
        408,
        "body-too-slow",
        f"the body did not arrive within {patience:g} s",
        hint="DEUTERON_BODY_SECONDS on the server raises the limit",
        headers={"Connection": "close"},
    )


class _Buckets:
    """Token buckets by name: ``rate`` a second, ``burst`` at once. The oldest are forgotten."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take one; seconds to wait when there is none."""
        level = self._level(name)
        allowed = level >= 1.0
        self._levels.pop(name, None)
        self._levels[name] = (level - 1.0 if allowed else level, self._clock())
        if len(self._levels) > _MAX_CALLERS:
            self._levels.popitem(last=False)
        return 0.0 if allowed else (1.0 - level) / self.rate

    def _level(self, name: str) -> float:
        now = self._clock()
        level, seen = self._levels.get(name, (self.burst, now))
        return min(self.burst, level + (now - seen) * self.rate)


class RateLimit:
    """An allowance per token that was accepted before, and one per address for everybody else; besides, addresses are
    told of only some wrong tokens a minute, as headers, cookies or at /login.

    A token counts only once it was accepted: else every made-up one would have an allowance of its own. Every token is
    looked up, or whoever shares an address with somebody who guesses would be locked out.
    The buckets live in this process: with several server processes each allows the full rate.
    """

    def __init__(self, app: ASGIApp, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self.rate = settings.rate_per_minute / 60.0
        self.uses_tokens = settings.requires_tokens
        self._requests = _Buckets(self.rate or 1.0, max(1.0, self.rate * _BURST_SECONDS), clock)
        self._failures = _Buckets(FAILURES_PER_MINUTE / 60.0, FAILURE_BURST, clock)
        self._accepted: OrderedDict[str, None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.rate == 0 or str(scope["path"]).startswith(_UNLIMITED_PATHS):
            await self.app(scope, receive, send)
            return
        address, token = _address(scope), _token_digest(scope) if self.uses_tokens else None
        known = token is not None and token in self._accepted
        wait = self._requests.take(token if known and token else address)
        if wait > 0:
            await self._refuse(wait, f"more than {self.rate * 60:.0f} requests a minute", scope, receive, send)
            return
        refused = False

        async def noting_send(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                wait = self._note(address, scope.get(CHECKED))
                refused = wait > 0
                if refused:
                    await self._refuse(wait, "too many wrong tokens from this address", scope, receive, send)
            if not refused:
                await send(message)

        await self.app(scope, receive, noting_send)

    def _note(self, address: str, checked: CheckedToken | None) -> float:
        """Learn whether the request's token was a good one; seconds to wait after too many wrong ones."""
        if checked is None:
            return 0.0
        if not checked.is_good:
            known = checked.digest in self._accepted
            self._accepted.pop(checked.digest, None)
            return 0.0 if known else self._failures.take(address)
        self._accepted[checked.digest] = None
        if len(self._accepted) > _MAX_CALLERS:
            self._accepted.popitem(last=False)
        return 0.0

    async def _refuse(self, wait: float, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = max(1, round(wait + 0.5))
        response = problem_response(
            429,
            "rate-limited",
            detail,
            hint=f"try again in {seconds} s",
            headers={"Retry-After": str(seconds)},
        )
        await response(scope, receive, send)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def _token_digest(scope: Scope) -> str | None:
    """Identifies the bearer token, however its header is spelled, or else that of the cookie; None without one."""
    headers = Headers(scope=scope)
    scheme, _, secret = headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        secret = headers.get("cookie", "").partition("=")[2]  # one at most: see OwnCookie
    return digest(secret.strip()) if secret.strip() else None
