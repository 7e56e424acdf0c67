"""Commands that talk to a service, where what answers is none: one error that says so, and no traceback."""

from __future__ import annotations

import gzip
import json
from http.server import BaseHTTPRequestHandler

import pytest
from answering import AnsweringServer, send

#: Bodies of answers, and what is said of them.
ANSWERS: dict[str, tuple[bytes, str]] = {
    "page": (b"<html>Sign in to the network</html>", "not valid JSON"),
    "list": (b"[1]", "expected an object"),
    "number": (b'{"jobs": [' + b"9" * 5000 + b"]}", "not valid JSON"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "other": (json.dumps({"jobs": [{"id": 1}], "workers": 7, "id": [], "configs": None}).encode(), "answer"),
    "binary": (b"{\xff", "not UTF-8"),
    "nothing": (b"", "not valid JSON"),
}


@pytest.mark.parametrize("arguments", [("jobs",), ("workers", "list"), ("workers", "drain", "w"), ("watch", "x")])
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_no_service_is_said_to_be_none(run, answer: str, arguments: tuple[str, ...]) -> None:
    body, said = ANSWERS[answer]

    with AnsweringServer(lambda handler: send(handler, 200, body)) as server:
        ran = run(*arguments, "--server", server.url)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert "does not answer as a service does" in ran.err and "is this the address of a deuteron service?" in ran.err
    assert said in ran.err or answer == "other"


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_doctor_finds_out(run, answer: str) -> None:
    with AnsweringServer(lambda handler: send(handler, 200, ANSWERS[answer][0])) as server:
        ran = run("doctor", "--json", "--server", server.url)
    (said,) = (check for check in json.loads(ran.out) if check["name"] == "service")
    assert ran.code == 1 and said["state"] == "problem" and "does not answer as a service does" in said["text"]


@pytest.mark.parametrize("arguments", [("jobs",), ("watch", "x"), ("cache", "pull")])
def test_redirects_are_not_followed(run, arguments: tuple[str, ...]) -> None:
    """A token would go along."""
    with AnsweringServer(lambda handler: send(handler, 302, b"", location="https://elsewhere/")) as server:
        ran = run(*arguments, "--server", server.url)
    assert ran.code == 2 and "redirects to https://elsewhere/" in ran.err and "Traceback" not in ran.err


def test_an_answer_that_swells_is_refused(run, monkeypatch: pytest.MonkeyPatch) -> None:
    body = gzip.compress(bytes(300 << 20), 1)
    with AnsweringServer(lambda handler: send(handler, 200, body, content_encoding="gzip")) as server:
        ran = run("jobs", "--server", server.url)
    assert ran.code == 2 and "the body has more than 268435456 bytes" in ran.err


EVENTS = ("id: x\ndata: {}", f"id: {'9' * 5000}\ndata: {{}}", "id: 1\ndata: [", "\xff", "id: 1\ndata: 7")


@pytest.mark.parametrize("event", EVENTS)
def test_streams_of_something_else_are_refused(run, event: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        job = dict.fromkeys(("id", "state", "kernel_name", "kernel_hash", "device", "created_at"), "x")
        stream = handler.path.endswith("/events")
        send(handler, 200, f"{event}\n\n".encode("latin-1") if stream else json.dumps({**job, "attempts": 1}).encode())

    with AnsweringServer(answer) as server:
        ran = run("watch", "x", "--server", server.url)
    assert ran.code == 2 and "does not answer as a service does" in ran.err
