"""Spools: an event is on disk before it is sent, and what killed processes left is read, kept or removed."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any, cast

import pytest
from link_stand_ins import RefusingLink

from deuteron.server.dispatch.link import Link
from deuteron.server.dispatch.run import Bench, deliver_leftovers, forget_dead_runs
from deuteron.server.dispatch.spool import KEPT_S, Spool, leftovers
from deuteron.server.dispatch.supervisor import DaskDispatcher
from deuteron.server.files import remove_parts
from deuteron.tuner.events import JobStarted


def test_what_is_of_another_service_is_kept_for_a_while(service: Any) -> None:
    """Workers of two services on one host have one home; the other one's job was dropped with its trials."""
    context, _ = service
    folder = context.settings.directory("spool")
    left = Spool(folder, str(uuid.uuid4()), "ticket.run")
    left.append(JobStarted("k", "cpu/test", "random", 1, 5, None).to_json())
    left.close()
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "")
    began = time.monotonic()
    assert dispatcher._store_leftovers(folder) == 1
    dispatcher._recover()
    assert left.path.exists() and time.monotonic() - began < 1.5, "it is not waited for"
    link = cast(Link, RefusingLink(404))
    bench = Bench("http://127.0.0.1:1", "", "cpu", context.settings.home, "x:y", folder)
    assert deliver_leftovers(bench, link) == 0 and left.path.exists()
    old = time.time() - KEPT_S - 60
    os.utime(left.path, (old, old))
    dispatcher._store_leftovers(folder)
    assert not left.path.exists()


def test_what_killed_processes_had_begun_is_removed(service: Any) -> None:
    """Folders of runs, uploads and bundles in the making stayed for ever."""
    context, _ = service
    home, old = context.settings.home, time.time() - 3 * 86400
    bench = Bench("http://127.0.0.1:1", "", "cpu", home, "x:y", home / "locks")
    for name in ("dead.run", "alive.run", "new.run"):
        (bench.runs / name).mkdir(parents=True)
        (bench.runs / name / "search.hatchet").write_text("[]")
    for name in ("dead.run", "alive.run"):
        os.utime(bench.runs / name, (old, old))
    alive = Spool(bench.spool, "job", "alive.run")
    forget_dead_runs(bench)
    assert sorted(path.name for path in bench.runs.iterdir()) == ["alive.run", "new.run"]
    alive.close()

    folder = context.settings.directory("bundles")
    names = ["a.bundle", "x.part", ".x.part.k2j4", "y.gz.part"]
    for name in names:
        (folder / name).write_text("")
        os.utime(folder / name, (old, old))
    (folder / "now.part").write_text("")
    remove_parts(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["a.bundle", "now.part"]


def test_an_event_is_on_disk_before_it_may_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, "job", "ticket.run")
    synced: list[tuple[int, int]] = []

    def fsync(descriptor: int) -> None:
        assert os.fstat(descriptor).st_ino == spool.path.stat().st_ino
        synced.append((len(spool.path.read_bytes().splitlines()), len(spool.unsent())))

    monkeypatch.setattr("os.fsync", fsync)
    for number in range(3):
        spool.append({"kind": "x", "number": number})
    assert synced == [(1, 0), (2, 1), (3, 2)]
    assert [d.sequence for d in spool.unsent()] == [1, 2, 3]
    assert list(leftovers(tmp_path)) == []  # its writer is alive
    spool.acknowledge(2)
    assert [d.event["number"] for d in spool.unsent()] == [2]
    spool.close()
    (left,) = leftovers(tmp_path)
    assert (left.job_id, left.claim_id, len(left.deliveries)) == ("job", "ticket.run", 3)


def test_a_spool_that_was_acknowledged_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "job", "run")
    spool.append({"kind": "x"})
    spool.acknowledge(1)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "job.run.jsonl").write_bytes(b'{"sequence":1,"event":{"kind":"x"}}\n{"sequence":2,"eve')
    (left,) = leftovers(tmp_path)
    assert [d.sequence for d in left.deliveries] == [1]


def test_a_damaged_line_keeps_none_behind_it_back(tmp_path: Path) -> None:
    lines = [b'{"sequence":%d,"event":{"kind":"x"}}' % number for number in (1, 2, 3)]
    lines[1] = lines[1][:9] + b"\x00" * 8 + lines[1][17:]
    (tmp_path / "job.run.jsonl").write_bytes(b"\n".join([*lines, b""]))
    (left,) = leftovers(tmp_path)
    assert [d.sequence for d in left.deliveries] == [1, 3]


def test_a_file_that_cannot_be_opened_keeps_no_other_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As one of a worker that root ran once: each job of the host failed, and the service stored no leftovers."""
    (tmp_path / "a.run.jsonl").mkdir()
    (tmp_path / "b.run.jsonl").write_bytes(b'{"sequence":1,"event":{"kind":"x"}}\n')
    for _ in range(2):
        (left,) = leftovers(tmp_path)
        assert left.job_id == "b"
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'a.run.jsonl'} is left where it is: Is a directory"
    ]
