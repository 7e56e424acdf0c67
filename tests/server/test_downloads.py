"""Bundles that the client downloads, from servers that break off, lie, or are asked by several at once."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from answering import send
from fastapi.testclient import TestClient
from scripted_server import Script, Scripted

from deuteron.server import Client
from deuteron.server.client import DownloadError
from deuteron.server.configs import put_record
from deuteron.server.files import alone, file_sha256
from deuteron.tuner import write_bundle

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def ranged(handler: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
    start = int(handler.headers.get("Range", "bytes=0-")[6:].rstrip("-"))
    status = 206 if start and handler.headers.get("If-Range") == f'"{SHA256}"' else 200
    return status, CONTENT[start:] if status == 206 else CONTENT, {"etag": f'"{SHA256}"'}


def test_what_is_there_is_named_in_both_forms(scripted: Callable[[Script], Scripted], tmp_path: Path) -> None:
    """A cache on the way may have the compressed form, and compares by itself."""
    write_bundle(tmp_path / "b", [])
    bundle = file_sha256(tmp_path / "b")
    server = scripted(lambda handler, _n: send(handler, 404 if "pieces" in handler.path else 304, b""))
    with Client(server.url) as client:
        assert not client.pull_bundle(tmp_path / "b").changed
    assert server.requests[-1][1]["if-none-match"] == f'"{bundle}", "{bundle}-gzip"'


def test_a_broken_download_is_resumed(scripted: Callable[[Script], Scripted], tmp_path: Path) -> None:
    def script(handler: BaseHTTPRequestHandler, number: int) -> None:
        status, body, headers = ranged(handler)
        if number < 3:
            handler.send_response(status)
            handler.send_header("etag", headers["etag"])
            handler.send_header("content-length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[:300_000])
            handler.wfile.flush()
            handler.connection.shutdown(2)
        else:
            send(handler, status, body, **headers)

    server = scripted(script)
    with Client(server.url) as client:
        done = client.pull_bundle(tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == CONTENT
    assert (done.sha256, done.changed) == (SHA256, True)
    assert [headers.get("range") for _, headers in server.requests] == [
        None,
        "bytes=300000-",
        "bytes=600000-",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_those_who_download_one_file_at_once_do_it_once(scripted: Callable[[Script], Scripted], tmp_path: Path) -> None:
    """All wrote to one unfinished file: but one said that somebody altered it, or that it was gone."""
    answers: list[int] = []

    def script(handler: BaseHTTPRequestHandler, _number: int) -> None:
        known = SHA256 in handler.headers.get("If-None-Match", "")
        answers.append(404 if "pieces" in handler.path else 304 if known else 200)
        whole = answers[-1] == 200
        handler.send_response(answers[-1])
        handler.send_header("etag", f'"{SHA256}"')
        handler.send_header("content-length", str(len(CONTENT) if whole else 0))
        handler.end_headers()
        for start in range(0, len(CONTENT) if whole else 0, len(CONTENT) // 4):
            time.sleep(0.03)
            handler.wfile.write(CONTENT[start : start + len(CONTENT) // 4])

    def pull(number: int) -> str:
        # In the way of names that are patterns, too.
        with Client(server.url) as client:
            return client.pull_bundle(tmp_path / "b[1]").sha256

    server = scripted(script)
    with ThreadPoolExecutor(4) as several:
        assert list(several.map(pull, range(4))) == [SHA256] * 4
    assert answers.count(200) == 1
    assert (tmp_path / "b[1]").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["b[1]"]


def test_who_waited_for_a_lock_takes_the_one_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who had it has removed its file: a third one would make another, and have that."""
    path, flock = tmp_path / "lock", fcntl.flock
    before = iter([path.unlink])

    def lock(handle: int, how: int) -> None:
        next(before, lambda: None)()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    with alone(path), path.open("rb") as same, pytest.raises(BlockingIOError):
        flock(same, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not path.exists()


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("name", ["b", "b[1]", "b*"])
def test_an_unfinished_download_is_that_of_its_name(
    scripted: Callable[[Script], Scripted], tmp_path: Path, name: str, begun: bool
) -> None:
    """Whatever the name means as a pattern; those of names that begin with it stay."""
    others = [tmp_path / f".{other}.{SHA256}.part" for other in ("b.old", "bb", "b1", f"{name}.x")]
    for path in ([tmp_path / f".{name}.{SHA256}.part"] if begun else []) + others:
        path.write_bytes(CONTENT[:1000])
    server = scripted(lambda handler, _n: send(handler, *ranged(handler)[:2], etag=f'"{SHA256}"'))
    with Client(server.url) as client:
        client.pull_bundle(tmp_path / name)
    assert [headers.get("range") for _, headers in server.requests] == ["bytes=1000-" if begun else None]
    assert (tmp_path / name).read_bytes() == CONTENT
    assert sorted(tmp_path.iterdir()) == sorted({tmp_path / name, *others})


def test_wrong_content_is_never_published(scripted: Callable[[Script], Scripted], tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"the old bundle")
    server = scripted(lambda handler, _n: send(handler, 200, b"garbage", etag=f'"{SHA256}"'))
    with (
        Client(server.url) as client,
        pytest.raises(DownloadError, match="announced sha256") as error,
    ):
        client.pull_bundle(tmp_path / "b")
    assert error.value.hint
    assert (tmp_path / "b").read_bytes() == b"the old bundle"
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_what_a_link_leads_to_is_brought_up_to_date(scripted: Callable[[Script], Scripted], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "b"
    link.symlink_to(tmp_path / "real" / "b")
    server = scripted(lambda handler, _n: send(handler, 200, CONTENT, etag=f'"{SHA256}"'))
    with Client(server.url) as client:
        client.pull_bundle(link)
    assert link.is_symlink() and (tmp_path / "real" / "b").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()] == ["b"]


def test_what_the_process_has_open_is_no_file_to_bring_up_to_date(
    scripted: Callable[[Script], Scripted], tmp_path: Path
) -> None:
    """As ``/dev/stdout`` is, whose name a file would take from everybody."""
    server = scripted(lambda handler, _n: send(handler, 200, CONTENT, etag=f'"{SHA256}"'))
    link = tmp_path / "stdout"
    with (tmp_path / "opened").open("wb") as opened, Client(server.url) as client:
        link.symlink_to(f"/dev/fd/{opened.fileno()}")
        with pytest.raises(DownloadError, match="is no file"):
            client.pull_bundle(link)
    assert link.is_symlink() and (tmp_path / "opened").read_bytes() == b""


@pytest.mark.parametrize("place", ["folder", "file/b", "/proc/b"])
def test_a_download_that_cannot_be_written_is_an_error(
    scripted: Callable[[Script], Scripted], tmp_path: Path, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    server = scripted(lambda handler, _n: send(handler, 200, CONTENT, etag=f'"{SHA256}"'))
    with Client(server.url) as client, pytest.raises(DownloadError, match="cannot write"):
        client.pull_bundle(tmp_path / place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"], "nothing is left behind"


def test_a_download_that_keeps_breaking_is_an_error(scripted: Callable[[Script], Scripted], tmp_path: Path) -> None:
    def script(handler: BaseHTTPRequestHandler, _number: int) -> None:
        handler.send_response(200)
        handler.send_header("etag", f'"{SHA256}"')
        handler.send_header("content-length", str(len(CONTENT)))
        handler.end_headers()

    with (
        Client(scripted(script).url) as client,
        pytest.raises(DownloadError, match="connection broke 5 times"),
    ):
        client.pull_bundle(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_server_without_etags_is_not_trusted(scripted: Callable[[Script], Scripted], tmp_path: Path) -> None:
    server = scripted(lambda handler, _n: send(handler, 200, b"x"))
    with Client(server.url) as client, pytest.raises(DownloadError, match="no sha256 as its ETag"):
        client.pull_bundle(tmp_path / "b")


@pytest.mark.parametrize("body", [bytes(2000), gzip.compress(gzip.compress(bytes(1 << 20)))], ids=["large", "packed"])
def test_what_is_too_large_or_packed_is_not_downloaded(
    scripted: Callable[[Script], Scripted], tmp_path: Path, body: bytes
) -> None:
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"'}
    if body[0]:
        headers["Content_Encoding"] = "gzip, gzip"
    server = scripted(lambda handler, _n: send(handler, 200, body, **headers))
    with Client(server.url) as client, pytest.raises(DownloadError, match="is not downloaded") as caught:
        client.pull_bundle(tmp_path / "b", most_bytes=1999)
    assert "--max-mib" in str(caught.value.hint) and list(tmp_path.iterdir()) == []
    if not body[0]:
        with Client(server.url) as client:
            client.pull_bundle(tmp_path / "b", most_bytes=2000)
        assert (tmp_path / "b").read_bytes() == body


def test_the_part_of_an_older_bundle_is_dropped(
    client: TestClient, make_record: Callable[..., Any], tmp_path: Path
) -> None:
    """A resumed download of a bundle that has changed meanwhile starts again."""
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        put_record(tx, make_record({"M": 1, "N": 1}), None)
    (tmp_path / f".b.{'1' * 64}.part").write_bytes(b"old part")
    with Client("http://localhost", transport=_InProcess(client)) as inside:
        done = inside.pull_bundle(tmp_path / "b")
    assert hashlib.sha256((tmp_path / "b").read_bytes()).hexdigest() == done.sha256
    assert [path.name for path in tmp_path.glob("*b*")] + [path.name for path in tmp_path.glob(".b*")] == ["b"]


def test_the_part_of_a_bundle_that_is_no_longer_offered_is_dropped(
    scripted: Callable[[Script], Scripted], tmp_path: Path
) -> None:
    """A bundle changed, its download broke, and it changed back: what was left stayed for ever, and as long as it did
    no differences were fetched."""
    (tmp_path / "b").write_bytes(CONTENT)
    (tmp_path / f".b.{'1' * 64}.part").write_bytes(b"another one's")
    server = scripted(lambda handler, _n: send(handler, 304, b"", etag=f'"{SHA256}"'))
    with Client(server.url) as client:
        assert not client.pull_bundle(tmp_path / "b").changed
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


class _InProcess(httpx.BaseTransport):
    def __init__(self, client: TestClient) -> None:
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._client.request(
            request.method, str(request.url), headers=dict(request.headers), content=request.read()
        )
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
