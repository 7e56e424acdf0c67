"""The HTTP client: answers, refusals with their problem document, and silence."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest

from deuteron.tuner.addresses import is_file_address, is_service_address
from deuteron.tuner.fetch import Fetcher, FetchLimits
from deuteron.tuner.http import (
    MOST_ERROR_BYTES,
    HttpClient,
    ServiceError,
    ServiceUnreachable,
    StrangeAnswer,
    Unsendable,
)
from deuteron.tuner.http_body import BodyDecoder, BodyRefused


def client(answer: httpx.Response | Exception) -> HttpClient:
    def respond(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        answer.headers["seen"] = f"{request.url} {request.headers.get('authorization')}"
        return answer

    return HttpClient("http://service:1/base", token="secret", transport=httpx.MockTransport(respond))


def test_paths_are_below_the_address_and_addresses_stand_for_themselves() -> None:
    http = client(httpx.Response(200))
    assert http.send("GET", "/v1/jobs").headers["seen"] == "http://service:1/base/v1/jobs Bearer secret"
    with http.stream("http://service:1/file.bundle") as response:
        assert response.headers["seen"].startswith("http://service:1/file.bundle ")


@pytest.mark.parametrize(
    ("response", "message", "hint", "temporary"),
    [
        (httpx.Response(404, json={"detail": "no job 7", "hint": "list them"}), "no job 7 (404)", "list them", False),
        (httpx.Response(422, json={"detail": "x", "report": "line 3: no"}), "line 3: no (422)", None, False),
        (httpx.Response(503, text="<html>"), "Service Unavailable (503)", None, True),
        (httpx.Response(429, json=[1]), "Too Many Requests (429)", None, True),
    ],
)
def test_a_refusal_carries_the_problem(
    response: httpx.Response, message: str, hint: str | None, temporary: bool
) -> None:
    for call in (lambda http: http.send("GET", "/x"), lambda http: http.stream("/x").__enter__()):
        with pytest.raises(ServiceError) as caught:
            call(client(response))
        error = caught.value
        assert (error.message, error.hint, error.temporary) == (message, hint, temporary)
        assert error.status == response.status_code


@pytest.mark.parametrize(
    ("error", "message", "refused"),
    [
        (httpx.ConnectError("no route"), "http://service:1/base does not answer: no route", True),
        (httpx.ReadTimeout("slow"), "http://service:1/base did not answer in time", False),
        (httpx.RemoteProtocolError(""), "http://service:1/base does not answer: RemoteProtocolError", False),
    ],
)
def test_silence(error: Exception, message: str, refused: bool) -> None:
    with pytest.raises(ServiceUnreachable) as caught:
        client(error).send("GET", "/x")
    assert (caught.value.message, caught.value.refused) == (message, refused)


def test_an_address_that_is_none() -> None:
    with pytest.raises(ServiceUnreachable, match="is not an address"):
        HttpClient("http://[::1")


@pytest.mark.parametrize("token", ["secr\u00e9t", "sec\nret", "sec\x7fret", "secret "])
def test_a_token_that_no_request_can_carry_is_not_told(token: str) -> None:
    limits = FetchLimits(1, 1, 1, 1)
    for make in (HttpClient, lambda url, token: Fetcher(url, limits, token=token)):
        with pytest.raises(Unsendable, match="the token has characters") as caught:
            make("http://service:1", token=token)
        assert "sec" not in str(caught.value) and caught.value.__context__ is None


def test_a_body_is_decoded_once_and_within_its_limit() -> None:
    packed = gzip.compress(bytes(1 << 20))
    body = BodyDecoder("gzip", 1 << 20)
    assert sum(len(body.plain(packed[i : i + 7])) for i in range(0, len(packed), 7)) == 1 << 20
    assert BodyDecoder("", 3).plain(b"abc") == BodyDecoder("identity", 3).plain(b"abc") == b"abc"
    for encoding, piece in (
        ("gzip", packed + b"x"),
        ("gzip", packed + packed),
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(bytes((1 << 20) + 1))),
        ("", bytes((1 << 20) + 1)),
    ):
        with pytest.raises(BodyRefused):
            BodyDecoder(encoding, 1 << 20).plain(piece)
    for encoding in ("gzip, gzip", "br", "deflate"):
        with pytest.raises(BodyRefused, match="encoded"):
            BodyDecoder(encoding, 1 << 20)


class Endless(httpx.SyncByteStream):
    """A body that counts what is read of it."""

    read = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.read += 1 << 16
            yield bytes(1 << 16)


def test_an_endless_refusal_is_not_read() -> None:
    endless = Endless()
    with pytest.raises(ServiceError, match="Internal Server Error"):
        client(httpx.Response(500, stream=endless)).stream("/x").__enter__()
    assert endless.read <= MOST_ERROR_BYTES + (1 << 16)


def test_answers_are_decoded_within_a_limit() -> None:
    packed = gzip.compress(bytes(1 << 20))
    for limit, encoding in (((1 << 20) - 1, "gzip"), (1 << 30, "br")):
        answer = httpx.Response(200, headers={"content-encoding": encoding}, stream=httpx.ByteStream(packed))
        with pytest.raises(StrangeAnswer, match="the body"):
            client(answer).send("GET", "/x", most_bytes=limit)
    answer = httpx.Response(200, headers={"content-encoding": "gzip", "etag": "7"}, stream=httpx.ByteStream(packed))
    read = client(answer).send("GET", "/x", most_bytes=1 << 20)
    assert (read.content, read.headers["etag"]) == (bytes(1 << 20), "7")


def test_headers_beyond_ascii_are_no_matter() -> None:
    """As a proxy between may add: they ended commands in a traceback."""
    answer = httpx.Response(200, headers=[(b"via", b"caf\xe9"), (b"x-name", "M\u00fcller".encode())], content=b"[]")
    read = client(answer).send("GET", "/x")
    assert (read.content, read.headers["via"]) == (b"[]", "caf\u00e9")


def test_redirects_are_told() -> None:
    """An answer without a body was taken for one of the service."""
    for call in (lambda http: http.send("GET", "/x"), lambda http: http.stream("/x").__enter__()):
        with pytest.raises(StrangeAnswer, match="http://service:1/base redirects to https://service:1/x"):
            call(client(httpx.Response(302, headers={"location": "https://service:1/x"})))


@pytest.mark.parametrize(
    "url",
    [
        "http://a..b",
        "http://xn--a",
        "http://",
        "ftp://a",
        "http://a:99999",
        "http://[::1",
        "a",
        "http://a\n",
        "http://a/\ud800",
    ],
)
def test_what_can_be_no_host_is_refused(url: str) -> None:
    with pytest.raises(ServiceUnreachable, match="is not an address"):
        HttpClient(url)
    assert not is_service_address(url) and not is_file_address(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1/", "https://münchen.example", "HTTP://a_b/base"])
def test_addresses(url: str) -> None:
    assert is_service_address(url) and is_file_address(url)
    HttpClient(url).close()


def test_addresses_of_files_may_have_a_query() -> None:
    assert is_file_address("http://a:1/v1/bundles/latest?kernel=softmax&device=cuda%2Fh200&é=?")
    for query in ("a b", "a#b", "a\n", "\ud800", "\x00"):
        assert not is_file_address(f"http://a/?{query}")
    assert not is_service_address("http://a/?x=1")
