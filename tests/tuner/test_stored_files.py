"""Files that deuteron 0.1.0 wrote before its values were read by msgspec: job, journal, spool, bundle, database."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from deuteron.migrations import upgrade
from deuteron.server.dispatch.spool import leftovers
from deuteron.server.models import Base
from deuteron.tuner import ConfigRecord, JobSpec, Trial, event_from_json, lookup, read_bundle
from deuteron.tuner.codec import canonical_json, decode
from deuteron.tuner.events import JobFinished, JobStarted, ShapeFinished, TrialFinished, decode_event
from deuteron.tuner.journal import Journal, read_events
from deuteron.tuner.records import encode_record

STORED = Path(__file__).parent / "data" / "stored"


#: Fields that later versions added, with what they say of an old value.
ADDED = {
    "challenger": None,
    "held": {},
    "reason": None,
    "measurement": None,
    "known": (),
    "start": None,
    "site": None,
    "setup": None,
    "reach": None,
}


def as_written_then(value: object) -> str:
    """The canonical text of a value without the fields added since, which must say that nothing is known."""
    document = value.to_json()  # type: ignore[attr-defined]
    for part in (document, document.get("trial", {})):
        for name in ADDED.keys() & part.keys():
            assert part.pop(name) == ADDED[name]
    return canonical_json(document)


def stored_job() -> JobSpec:
    return JobSpec.from_json(json.loads((STORED / "job.json").read_text()))


def test_a_job_is_read_and_written_alike() -> None:
    text = (STORED / "job.json").read_text()
    assert canonical_json(stored_job().to_json()) == canonical_json(json.loads(text))


def test_a_journal_goes_on(tmp_path: Path) -> None:
    """Its first line has the digest of the job as the old code wrote it, so the job's JSON must be the same."""
    shutil.copy(STORED / "journal.jsonl", tmp_path)
    with Journal(tmp_path, stored_job()) as journal:
        assert [trial.phase for _, _, trial in journal.trials] == ["screen"] * 3 + ["race"] * 3 + ["final"] * 3
        assert journal.trials[0][0] == {"n": 4099}
        journal.append(JobFinished((), 1.0))
    assert isinstance(list(read_events(tmp_path / "journal.jsonl"))[-1], JobFinished)


def test_journal_lines_are_written_alike() -> None:
    lines = (STORED / "journal.jsonl").read_bytes().splitlines()[1:]
    events = [decode_event(line) for line in lines]
    assert isinstance(events[0], JobStarted)
    written = [event for event in events if not isinstance(event, ShapeFinished)]
    assert [as_written_then(event).encode() for event in written] == [
        line for line, event in zip(lines, events, strict=True) if event in written
    ]
    assert [event_from_json(json.loads(line)) for line in lines] == events


def test_a_spool_is_delivered(tmp_path: Path) -> None:
    shutil.copy(STORED / "job.ticket.run.jsonl", tmp_path)
    (found,) = leftovers(tmp_path)
    assert (found.job_id, found.claim_id) == ("job", "ticket.run")
    assert [delivery.sequence for delivery in found.deliveries] == list(range(1, len(found.deliveries) + 1))
    events = [event_from_json(delivery.event) for delivery in found.deliveries]
    assert sum(isinstance(event, TrialFinished) for event in events) == 9


def test_a_bundle_is_read_and_written_alike() -> None:
    bundle = read_bundle(STORED / "records.bundle")
    (record,) = bundle.records()
    line = (STORED / "records.bundle").read_bytes().splitlines()[1]
    assert as_written_then(record).encode() == line
    assert encode_record(record).rstrip() == canonical_json(record.to_json()).encode()
    assert lookup([record], record.kernel_hash, record.device, {"n": 4099}, "f32").match == "exact"


def test_columns_of_a_database(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "deuteron.db")
    database.executescript((STORED / "deuteron.sql").read_text())
    upgrade(f"sqlite:///{tmp_path / 'deuteron.db'}")
    assert set(Base.metadata.tables) <= {name for (name,) in database.execute("SELECT name FROM sqlite_master")}

    def column(query: str) -> list[str]:
        return [text for (text,) in database.execute(query)]

    (spec,) = column("SELECT spec FROM jobs")
    assert JobSpec.from_json(json.loads(spec)) == stored_job()
    (record,) = column("SELECT body FROM configs")
    assert as_written_then(decode(record, ConfigRecord, "configs.body")) == record
    trials = [decode(text, Trial, "trials.body") for text in column("SELECT body FROM trials ORDER BY sequence")]
    assert len(trials) == 9 and all(trial.status == "ok" for trial in trials)
    events = column("SELECT body FROM events WHERE kind <> 'job_state' ORDER BY id")
    assert isinstance(decode_event(events[0]), JobStarted)


@pytest.mark.parametrize("name", ["journal.jsonl", "records.bundle", "job.ticket.run.jsonl"])
def test_the_stored_files_are_json_lines(name: str) -> None:
    """What other programs read them with."""
    assert all(json.loads(line) for line in (STORED / name).read_text().splitlines())
