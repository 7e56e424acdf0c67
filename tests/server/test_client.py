"""The client against real servers that break in the ways networks break."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from answering import send
from scripted_server import Script, Scripted

from deuteron.server import Client
from deuteron.server.client import ServiceError, ServiceUnreachable
from deuteron.server.client import client as client_module
from deuteron.server.client.stream import parse_events
from deuteron.tuner.http import Unsendable

JOB = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}], "budget": {"trials": 4, "seconds": 0.4}}

TOLD = ((1, b"running"), (2, b"succeeded"))


def job_in(state: str) -> bytes:
    """What a service says of a job."""
    told = {"kernel_name": "k", "kernel_hash": "h", "device": "cpu", "attempts": 1, "created_at": ""}
    return json.dumps({"id": "1", "state": state, **told}).encode()


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
