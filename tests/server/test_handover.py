"""What a worker's process tells of its job when it is stopped, and when the job ends."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from link_stand_ins import NotingLink
from store_rows import stored

from deuteron.server.dispatch import run as run_module
from deuteron.server.dispatch.handover import Handover
from deuteron.server.dispatch.ingest import Receipt
from deuteron.server.dispatch.link import Assignment, Link
from deuteron.server.dispatch.reporter import Reporter
from deuteron.server.dispatch.run import Bench
from deuteron.server.dispatch.spool import Spool
from deuteron.tuner.events import JobCancelled, JobFailed, JobFinished, TuneEvent


def test_a_process_that_stops_hands_over_what_it_has_and_then_its_job(tmp_path: Path) -> None:
    handover, link = Handover(), NotingLink()
    with Reporter(cast(Link, link), Spool(tmp_path, "job", "t.1"), "job", "t.1") as reporter, handover.of(reporter):
        for number in range(5):
            reporter.emit({"kind": f"event {number}"})
        handover.stop()
        assert reporter.stop_requested and reporter.given_back
    assert link.heard == [f"event {number}" for number in range(5)] + ["t.1 gives job back"]
    # One that was claimed a moment later goes back, too.
    with Reporter(cast(Link, link), Spool(tmp_path, "job", "t.2"), "job", "t.2") as reporter, handover.of(reporter):
        assert reporter.stop_requested and link.heard[-1] == "t.2 gives job back"


def test_what_fails_while_a_process_stops_fails_no_job(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a pool of threads that takes nothing more."""
    context, job_id = service
    handover, link = Handover(), NotingLink()

    def runner(*_: object, **__: object) -> None:
        handover.stop()
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(run_module, "load_runner", lambda name: runner)
    bench = Bench("http://127.0.0.1:1", "token", "cpu", tmp_path, "any:run", tmp_path)
    bench.spool.mkdir()
    assignment = Assignment(json.loads(stored(context, job_id).spec), (), 1, 60.0)
    run_module._run_claimed(bench, cast(Link, link), job_id, "t.1", assignment, handover)
    assert link.heard == [f"t.1 gives {job_id} back"]


@pytest.mark.parametrize(
    ("end", "stops"),
    [
        *itertools.product([JobCancelled(), JobFailed("no configuration works", "see the trials")], [False, True]),
        (JobFinished((), 1.0), False),  # without a profile
    ],
)
def test_the_end_of_a_job_is_told_unless_it_is_given_back(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: TuneEvent, stops: bool
) -> None:
    context, job_id = service
    handover, link = Handover(), NotingLink()

    def runner(spec: object, *, emit: Callable[[Any], None], **_: object) -> None:
        if stops:
            handover.stop()
        emit(end)

    monkeypatch.setattr(run_module, "load_runner", lambda name: runner)
    bench = Bench("http://127.0.0.1:1", "token", "cpu", tmp_path, "any:run", tmp_path)
    bench.spool.mkdir()
    assignment = Assignment(json.loads(stored(context, job_id).spec), (), 1, 60.0)
    run_module._run_claimed(bench, cast(Link, link), job_id, "t.1", assignment, handover)
    assert link.heard == ([f"t.1 gives {job_id} back"] if stops else [end.to_json()["kind"]])


@pytest.mark.parametrize(
    ("receipt", "uploaded"),
    [(Receipt(proceed=True, cancel=True), True), (Receipt(proceed=False, cancel=False), False)],
    ids=["cancelled too late", "given to another run"],
)
def test_a_job_that_went_through_has_its_profile(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: Receipt, uploaded: bool
) -> None:
    context, job_id = service

    class AnsweringLink(NotingLink):
        def heartbeat(self, job_id: str, claim_id: str) -> Receipt:
            return receipt

        def upload_profile(self, job_id: str, claim_id: str, path: Path) -> None:
            self.heard.append(path.read_text())

    def runner(
        spec: object, *, emit: Callable[[Any], None], cancelled: Callable[[], bool], workdir: Path, **_: object
    ) -> None:
        deadline = time.monotonic() + 30
        while not cancelled() and time.monotonic() < deadline:
            time.sleep(0.01)
        (workdir / "search.hatchet").write_text("the profile")
        emit(JobFinished((), 1.0, "search.hatchet", "0" * 64))

    monkeypatch.setattr(run_module, "load_runner", lambda name: runner)
    bench, link = Bench("http://127.0.0.1:1", "token", "cpu", tmp_path, "any:run", tmp_path), AnsweringLink()
    bench.spool.mkdir()
    assignment = Assignment(json.loads(stored(context, job_id).spec), (), 1, 60.0)
    run_module._run_claimed(bench, cast(Link, link), job_id, "t.1", assignment, Handover())
    assert link.heard == (["the profile"] if uploaded else []) + ["job_finished"]
