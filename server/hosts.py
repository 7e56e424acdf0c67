"""Who a request says it is for: Host and Origin, read so that no spelling of them raises."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import HttpProblem, problem_response
from .settings import Settings

_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}


@lru_cache(maxsize=1024)
def split_address(text: str) -> SplitResult | None:
    """The parts of an address, None where it is not one (``http://[::1``, a port that is no number)."""
    try:
        parts = urlsplit(text)
        _ = parts.hostname, parts.port
    except ValueError:
        return None
    return parts


def is_over_tls(scope: Scope, settings: Settings) -> bool:
    """Whether a request came by https, as far as is known here: to this server, by the word of a proxy that is
    believed, or for the host of a public address that is https."""
    public, host = split_address(settings.public_url), Headers(scope=scope).get("host")
    if public is not None and public.scheme == "https" and public.netloc == host:
        return True
    return bool(scope.get("scheme") == "https")


def is_own_origin(scope: Scope, settings: Settings) -> bool:
    """Whether a request names, as the Origin that sent it, a page that this service served under the same Host, or
    under its public address where a proxy changes Host.

    A page by https may be: a proxy that is not known here may have spoken TLS. One by http is not where browsers come
    by https, as anybody on the way could have written it.
    """
    headers = Headers(scope=scope)
    parts, public = split_address(headers.get("origin", "")), split_address(settings.public_url)
    if parts is None:
        return False
    if public is not None and public.netloc and parts[:2] == public[:2]:
        return True
    if parts.netloc != headers.get("host", ""):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and not is_over_tls(scope, settings))


def refuse_foreign_pages(scope: Scope, settings: Settings) -> None:
    """Raises:
    HttpProblem: 403, a page elsewhere sent the request. Programs name no Origin.
    """
    origin = Headers(scope=scope).get("origin")
    if origin is not None and not is_own_origin(scope, settings):
        raise HttpProblem(
            403,
            "foreign-origin",
            f"a page at {origin[:80]} cannot do this for you",
            hint="open /login of this service; where a proxy changes Host, DEUTERON_PUBLIC_URL names the address",
        )


# Headers that say one thing: of two, one reader takes the first and another the last.
_SINGLE = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID")


class WellFormed:
    """Refuses requests whose Host is not a host name, headers twice of which one counts, and paths and queries with a
    NUL, which no database keeps."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host", "localhost")
            twice = next((name for name in _SINGLE if len(headers.getlist(name)) > 1), None)
            response = None
            if not host.isascii() or any(c in host for c in "/?#@ ") or split_address(f"//{host}") is None:
                response = problem_response(
                    400, "bad-host", f"{host[:80]!r} is not a host name", hint="send Host: name or Host: name:port"
                )
            elif twice is not None:
                response = problem_response(400, "repeated-header", f"the header {twice} is given more than once")
            elif "\0" in scope["path"] or b"%00" in scope.get("query_string", b""):
                response = problem_response(400, "bad-address", "the address contains the character U+0000")
            if response is not None:
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


class LoopbackOnly:
    """While no token is required, answers only requests that were addressed to this machine.

    A web page elsewhere can make a browser send requests to 127.0.0.1. Its own host name (DNS rebinding)
    or its Origin (cross-site POST) gives it away.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.enabled = not settings.requires_tokens
        self.allowed = {*_LOOPBACK_NAMES, settings.host.strip("[]")}
        public = split_address(settings.public_url)
        if public is not None and public.hostname:
            self.allowed.add(public.hostname)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.enabled:
            headers = Headers(scope=scope)
            host, origin = headers.get("host", "localhost"), headers.get("origin")
            address = split_address(f"//{host}")
            foreign = address is None or address.hostname not in self.allowed
            if foreign or (origin and not is_own_origin(scope, self.settings)):
                response = problem_response(
                    403,
                    "foreign-host",
                    f"this single-user service does not answer requests for {host} from {origin or 'there'}",
                    hint="use http://127.0.0.1, or set DEUTERON_AUTH=tokens",
                )
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)
