"""Requests to a deuteron service, or to whatever serves its bundles: one way to call, one pair of errors.

httpx is imported with this module: import it where a request is about to be made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from deuteron.compiler.errors import DeuteronError

from .addresses import is_service_address
from .http_body import BodyDecoder, BodyRefused

CONNECT_SECONDS = 5.0
#: Bytes that are read of the body of a refusal, decoded, and of an answer. What is larger is no problem document, and
#: no answer that is kept in memory.
MOST_ERROR_BYTES, MOST_ANSWER_BYTES = 64 << 10, 256 << 20

NO_SERVICE = "is this the address of a deuteron service?"
#: What a header may say: printable ASCII, without blanks at its ends.
_HEADER = re.compile(r"[!-~]+( +[!-~]+)*")


class ServiceUnreachable(DeuteronError):
    """The service does not answer: wrong address, not running, or the network is down. ``refused``: there was not even
    a connection, so the request was not sent."""

    #: As :attr:`ServiceError.temporary`.
    temporary = True

    def __init__(self, message: str, *, hint: str | None = None, refused: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.refused = refused


class Unsendable(DeuteronError):
    """What was to be sent can be in no request, such as a token of two lines; nobody was asked."""


class StrangeAnswer(DeuteronError):
    """What answers is no deuteron service, such as a proxy's page that asks who one is, or it sends what no service
    does."""


class ServiceError(DeuteronError):
    """The service answered with status 400 or above: ``status``, and its problem document (RFC 9457), if it sent
    one. ``headers``: those of the answer."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        problem: Mapping[str, object],
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.problem = dict(problem)
        self.headers = {} if headers is None else headers

    @property
    def temporary(self) -> bool:
        """Whether the same request may succeed later: too many requests, or a service or a proxy before it in trouble.
        Who repeats requests, or has a copy to go on with, treats that as a service that does not answer."""
        return self.status == 429 or self.status >= 500


class HttpClient:
    """A connection to one service.

    Paths are below ``url``; an address of its own stands for itself. ``token`` is sent as a bearer token. ``timeout_s``
    is for an answer, ``connect_s`` for the connection. A proxy that the environment names is used except on loopback,
    where a service of this machine must not be seen by it.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        timeout_s: float = 30.0,
        connect_s: float = CONNECT_SECONDS,
        transport: httpx.BaseTransport | None = None,
        use_proxy: bool = True,
    ) -> None:
        self.url = url
        self._connect_s = connect_s
        if not is_service_address(url):
            raise ServiceUnreachable(f"{url!r} is not an address", hint="http://host:port")
        headers = {"Accept-Encoding": "gzip", **authorization(token)}
        try:
            self._http = httpx.Client(
                base_url=url,
                headers=headers,
                timeout=httpx.Timeout(timeout_s, connect=connect_s),
                transport=transport,
                trust_env=use_proxy and not ignores_proxy(url),
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ServiceUnreachable(f"{url!r} is not an address: {error}", hint="http://host:port") from None

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def send(self, method: str, path: str, *, most_bytes: int = MOST_ANSWER_BYTES, **arguments: Any) -> httpx.Response:
        """The answer to one request; ``arguments`` as of httpx.Client.request. Of its body at most ``most_bytes`` are
        decoded.

        Raises:
            Unsendable: a header is none.
            ServiceUnreachable: no answer.
            ServiceError: the answer is a refusal.
            StrangeAnswer: it is a redirect, too large, or encoded in a way that was not asked for.
        """
        for name, value in arguments.get("headers", {}).items():
            if not is_header(value):
                raise Unsendable(f"{name} cannot be {value!r}", hint="printable ASCII, without blanks at its ends")
        try:
            with self._http.stream(method, path, **arguments) as response:
                if response.is_error:
                    raise service_error(response, error_body(*raw_body(response)))
                refuse_redirect(response, self.url)
                return _with_body(response, decoded_body(response, most_bytes))
        except httpx.RequestError as error:
            raise unreachable(self.url, error) from None
        except BodyRefused as error:
            raise StrangeAnswer(f"{self.url}{path}: {error.message}", hint=NO_SERVICE) from None

    @contextmanager
    def stream(
        self, path: str, *, silence_s: float | None = None, raw_errors: bool = False, **arguments: Any
    ) -> Iterator[httpx.Response]:
        """An answer to GET whose body is read as it arrives; ``silence_s``: the longest pause in it.

        Raises as :meth:`send` does; with ``raw_errors`` a broken connection stays httpx's error, for callers that
        resume.
        """
        if silence_s is not None:
            arguments["timeout"] = httpx.Timeout(silence_s, connect=self._connect_s)
        try:
            with self._http.stream("GET", path, **arguments) as response:
                if response.is_error and response.status_code != 416:
                    raise service_error(response, error_body(*raw_body(response)))
                refuse_redirect(response, self.url)
                yield response
        except httpx.RequestError as error:
            if raw_errors:
                raise
            raise unreachable(self.url, error) from None


def unreachable(url: str, error: httpx.RequestError) -> ServiceUnreachable:
    """The error for a request that got no answer."""
    if isinstance(error, httpx.TimeoutException):
        return ServiceUnreachable(f"{url} did not answer in time", hint="try again, or look at its log")
    return ServiceUnreachable(
        f"{url} does not answer: {str(error) or type(error).__name__}",
        hint="start it with `deuteron serve`, or name another with --server",
        refused=isinstance(error, httpx.ConnectError),
    )


def is_header(value: str) -> bool:
    """Whether a request can carry a header of this value; what answers say need not be."""
    return _HEADER.fullmatch(value) is not None


def authorization(token: str) -> dict[str, str]:
    """The header that carries a token; none where there is none. Raises :class:`Unsendable`, which does not show it."""
    if token and not is_header(token):
        raise Unsendable(
            "the token has characters that no request can carry",
            hint="DEUTERON_TOKEN, or DEUTERON_UPSTREAM_TOKEN, is what `deuteron token create` printed: a line of ASCII",
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def ignores_proxy(url: str) -> bool:
    """Whether an address is of this machine, whose services a proxy must not see."""
    return httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")


def raw_body(response: httpx.Response) -> tuple[str, Iterable[bytes]]:
    """The encoding of a body, and its pieces as they arrive. One that is read already, as those of transports without a
    network are, is decoded."""
    if response.is_stream_consumed:
        return "", (response.content,)
    return response.headers.get("Content-Encoding", ""), response.iter_raw()


def decoded_body(response: httpx.Response, most_bytes: int) -> bytes:
    """The body of an answer. Raises :class:`BodyRefused` for one of more than ``most_bytes``."""
    encoding, pieces = raw_body(response)
    body = BodyDecoder(encoding, most_bytes)
    return b"".join(body.plain(piece) for piece in pieces)


def refuse_redirect(response: httpx.Response, url: str) -> None:
    """Raises :class:`StrangeAnswer` for a redirect: none is followed, as tokens would go along."""
    if response.has_redirect_location:
        location = response.headers["Location"]
        raise StrangeAnswer(f"{url} redirects to {location[:200]}", hint="name the address of the service itself")


def _with_body(response: httpx.Response, body: bytes) -> httpx.Response:
    """The answer with its body decoded."""
    encoded = (b"content-encoding", b"content-length", b"transfer-encoding")
    # As bytes: a proxy's header may have letters beyond ASCII, which httpx reads and does not take as text.
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in encoded]
    return httpx.Response(response.status_code, headers=headers, content=body, request=response.request)


def error_body(encoding: str, pieces: Iterable[bytes]) -> bytes:
    """The start of a refusal's body out of its raw pieces; nothing where it cannot be decoded."""
    found = b""
    try:
        body = BodyDecoder(encoding, MOST_ERROR_BYTES)
        for piece in pieces:
            found += body.plain(piece)
    except BodyRefused:
        return b""
    return found


def service_error(response: httpx.Response, body: bytes) -> ServiceError:
    """The error for an answer with status 400 or above and this body."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    problem: dict[str, object] = document if isinstance(document, dict) else {}
    report = problem.get("report")
    detail = report or problem.get("detail") or response.reason_phrase
    hint = None if report else problem.get("hint")
    return ServiceError(
        f"{detail} ({response.status_code})",
        status=response.status_code,
        problem=problem,
        hint=str(hint) if hint else None,
        headers=response.headers,
    )
