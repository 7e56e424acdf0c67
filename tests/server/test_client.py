"""The client against real servers that break in the ways networks break."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from answering import AnsweringServer, send
from fastapi.testclient import TestClient

from deuteron.server import Client
from deuteron.server.client import DownloadError, ServiceError, ServiceUnreachable
from deuteron.server.client import client as client_module
from deuteron.server.client.stream import parse_events
from deuteron.server.configs import put_record
from deuteron.server.files import alone, file_sha256
from deuteron.tuner import write_bundle
from deuteron.tuner.http import Unsendable

JOB = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}], "budget": {"trials": 4, "seconds": 0.4}}

TOLD = ((1, b"running"), (2, b"succeeded"))

Script = Callable[[BaseHTTPRequestHandler, int], None]


def job_in(state: str) -> bytes:
    """What a service says of a job."""
    told = {"kernel_name": "k", "kernel_hash": "h", "device": "cpu", "attempts": 1, "created_at": ""}
    return json.dumps({"id": "1", "state": state, **told}).encode()


class Scripted(AnsweringServer):
    """A server whose answers a test writes by hand, byte by byte: ``script`` is told the number of the request."""

    def __init__(self, script: Script) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []

        def answer(handler: BaseHTTPRequestHandler) -> None:
            self.requests.append((handler.path, {k.lower(): v for k, v in handler.headers.items()}))
            script(handler, len(self.requests))

        super().__init__(answer)


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], Scripted]]:
    made: list[Scripted] = []

    def make(script: Script) -> Scripted:
        made.append(Scripted(script))
        return made[-1]

    yield make
    for server in made:
        server.close()


# -- jobs, against the service


def test_submit_watch_and_look_up(make_service: Callable[..., Any], tmp_path: Path) -> None:
    service = make_service()
    with Client(service.url) as client:
        job = client.submit(JOB)
        assert client.submit(JOB, idempotency_key="k").id == client.submit(JOB, idempotency_key="k").id
        events = list(client.watch(job.id))
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        assert [event.kind for event in events].count("trial_finished") == 4
        assert events[-1].ends_job
        assert list(client.watch(job.id, after=events[-1].id)) == []
        done = client.job(job.id)
        assert (done.state, done.trials, done.is_final) == ("succeeded", 4, True)
        (record,) = client.records(job.id)
        found = client.lookup(record.kernel_hash, record.device.key, {"M": 8, "N": 8}, "f32", strict=True)
        assert (found.match, found.record, found.toolchain_differences) == ("exact", record, None)
        mine = {**record.toolchain, "compiler": "mine"}
        found = client.lookup(record.kernel_hash, record.device.key, {"M": 8, "N": 8}, "f32", toolchain=mine)
        assert (found.match, found.record) == ("other_toolchain", record)
        assert [d.current for d in found.toolchain_differences or ()] == ["mine"]
        assert client.cancel(job.id).state == "succeeded"
        assert job.id in [item.id for item in client.jobs(limit=10)]
        assert client.profile(job.id, tmp_path / "p.hatchet").read_text() == "[]"
        first = client.pull_bundle(tmp_path / "b.bundle")
        second = client.pull_bundle(tmp_path / "b.bundle")
        assert (first.changed, second.changed) == (True, False)
        assert first.sha256 == hashlib.sha256((tmp_path / "b.bundle").read_bytes()).hexdigest()
        with pytest.raises(ServiceError, match="no job nobody") as caught:
            client.job("nobody")
        assert caught.value.status == 404
        assert caught.value.hint


def test_watch_goes_on_after_the_server_was_killed(make_service: Callable[..., Any]) -> None:
    service = make_service()
    with Client(service.url) as client:
        job = client.submit({**JOB, "budget": {"trials": 8, "seconds": 2.0}})
        seen: list[int] = []
        trials = 0
        for event in client.watch(job.id):
            seen.append(event.id)
            trials += event.kind == "trial_finished"
            if trials == 3 and service.process.poll() is None and len(seen) < 8:
                service.kill()
                threading.Thread(target=service.start).start()
                trials += 100
        assert seen == list(range(1, len(seen) + 1))
        assert trials == 108
        assert client.job(job.id).state == "succeeded"


def test_watch_misses_nothing_of_a_job_that_ends_between_two_streams(scripted: Callable[[Script], Scripted]) -> None:
    """A server that stops, or a proxy on the way, ends streams as a job's end does."""
    left = iter([b'id: %d\nevent: job_state\ndata: {"state": "%s"}\n\n' % told for told in TOLD])

    def script(handler: BaseHTTPRequestHandler, _number: int) -> None:
        send(handler, 200, next(left) if handler.path.endswith("/events") else job_in("succeeded"))

    server = scripted(script)
    with Client(server.url) as client:
        assert [event.data["state"] for event in client.watch("1")] == ["running", "succeeded"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that a client makes, which take no time; its clock goes on by 100 s whenever it looks."""
    made: list[float] = []
    clock = itertools.count(1.0, 100.0)
    monkeypatch.setattr(client_module, "time", SimpleNamespace(sleep=made.append, monotonic=lambda: next(clock)))
    return made


def test_patience_with_a_lost_stream_begins_anew_with_every_event(
    scripted: Callable[[Script], Scripted], pauses: list[float]
) -> None:
    running, succeeded = (b'id: %d\nevent: job_state\ndata: {"state": "%s"}\n\n' % told for told in TOLD)
    answers = iter([None, running, None, None, succeeded, None, None, None])

    def script(handler: BaseHTTPRequestHandler, _number: int) -> None:
        stream = next(answers) if handler.path.endswith("/events") else job_in("running")
        send(handler, 503 if stream is None else 200, stream or b"")

    server = scripted(script)
    with Client(server.url) as client:
        assert [event.id for event in client.watch("1", patience_s=120)] == [1, 2]
        with pytest.raises(ServiceError):
            list(client.watch("1", patience_s=120))
    assert next(answers, "none") == "none"


def test_who_is_not_there_is_not_asked_again_to_take_a_job(pick_port: Callable[[], int], pauses: list[float]) -> None:
    with Client(f"http://127.0.0.1:{pick_port()}") as client, pytest.raises(ServiceUnreachable):
        client.submit(JOB)
    assert pauses == []


def test_nobody_answers(pick_port: Callable[[], int]) -> None:
    with (
        Client(f"http://127.0.0.1:{pick_port()}") as client,
        pytest.raises(ServiceUnreachable, match="does not answer") as caught,
    ):
        client.jobs()
    assert "deuteron serve" in str(caught.value.hint)


def test_a_silent_server_is_given_up(scripted: Callable[[Script], Scripted]) -> None:
    release = threading.Event()

    def script(_handler: BaseHTTPRequestHandler, _number: int) -> None:
        release.wait(10)

    server = scripted(script)
    with (
        Client(server.url, timeout_s=0.3) as client,
        pytest.raises(ServiceUnreachable, match="did not answer in time"),
    ):
        client.jobs()
    release.set()


@pytest.mark.parametrize("status", [500, 503])
def test_submit_retries_under_one_key(scripted: Callable[[Script], Scripted], status: int) -> None:
    answer = (
        b'{"id":"1","state":"queued","kernel_name":"k","kernel_hash":"h","device":"cpu",'
        b'"progress":{"trials":0,"trials_total":1},"attempts":0,"created_at":""}'
    )

    def script(handler: BaseHTTPRequestHandler, number: int) -> None:
        if number == 1:
            handler.connection.close()
        elif number == 2:
            send(handler, status, b"")
        else:
            send(handler, 202, answer)

    server = scripted(script)
    with Client(server.url) as client:
        assert client.submit(JOB).id == "1"
    keys = {headers["idempotency-key"] for _, headers in server.requests}
    assert (len(server.requests), len(keys)) == (3, 1)


def test_problem_documents_become_errors(scripted: Callable[[Script], Scripted]) -> None:
    body = b'{"detail": "line 3: no", "hint": "yes", "report": "add.py:3:1: no\\n  x\\n  ^"}'
    server = scripted(lambda handler, number: send(handler, 422, body if number == 1 else b"<html>"))
    with Client(server.url) as client:
        with pytest.raises(ServiceError) as caught:
            client.jobs()
        assert "add.py:3:1: no\n  x\n  ^" in str(caught.value)
        with pytest.raises(ServiceError, match="Unprocessable"):
            client.jobs()


def test_names_of_workers_are_one_part_of_an_address(scripted: Callable[[Script], Scripted]) -> None:
    server = scripted(lambda handler, number: send(handler, 404, b""))
    with Client(server.url) as client, pytest.raises(ServiceError):
        client.drain("../jobs/cpu@a?")
    assert server.requests[0][0] == "/v1/workers/..%2Fjobs%2Fcpu%40a%3F/drain"


@pytest.mark.parametrize(("job", "part"), [("7/cancel?", "7%2Fcancel%3F"), ("a\nb", "a%0Ab"), ("#", "%23")])
def test_ids_of_jobs_are_one_part_of_an_address(scripted: Callable[[Script], Scripted], job: str, part: str) -> None:
    server = scripted(lambda handler, number: send(handler, 404, b""))
    with Client(server.url) as client:
        for call in (client.job, client.records, client.cancel, lambda job_id: next(client.watch(job_id))):
            with pytest.raises(ServiceError):
                call(job)
    assert [path for path, _ in server.requests] == [
        f"/v1/jobs/{part}{what}" for what in ("", "", "/cancel", "/events")
    ]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_paths_leave_out_are_sent_to_no_other_address(
    scripted: Callable[[Script], Scripted], name: str
) -> None:
    """`deuteron watch ""` read the list of jobs, and said that the service redirects."""
    server = scripted(lambda handler, number: send(handler, 200, job_in("queued")))
    with Client(server.url) as client:
        for call in (client.job, client.records, client.cancel, lambda job_id: next(client.watch(job_id))):
            with pytest.raises(Unsendable, match=re.escape(f"there is no job {name!r}")):
                call(name)
        for change in (client.drain, client.resume):
            with pytest.raises(Unsendable, match=re.escape(f"there is no worker {name!r}")):
                change(name)
    assert not server.requests


@pytest.mark.parametrize("key", ["é", " k", "k\nX-Other: 1"])
def test_a_key_that_no_header_can_have_is_named(scripted: Callable[[Script], Scripted], key: str) -> None:
    server = scripted(lambda handler, number: send(handler, 202, job_in("queued")))
    with Client(server.url) as client, pytest.raises(Unsendable, match="Idempotency-Key cannot be"):
        client.submit(JOB, idempotency_key=key)
    assert server.requests == []


# -- the stream format


def test_a_cut_off_event_is_not_delivered() -> None:
    lines = [
        "retry: 1000", "", ": still here", "", "id: 1", "event: a", 'data: {"x":1}', "",
        "id: 2", "event: b", 'data: {"x":2}',
    ]  # fmt: skip
    assert [(e.id, e.kind, e.data) for e in parse_events(lines)] == [(1, "a", {"x": 1})]


# -- downloads

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
