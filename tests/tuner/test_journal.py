from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from deuteron.tuner.errors import JournalError, SchemaError
from deuteron.tuner.events import JobStarted, TrialFinished
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.journal import Journal, read_events
from deuteron.tuner.trial import Trial
from deuteron.tuner.workloads import builtin_workload

SPEC = JobSpec(builtin_workload("softmax"), ({"M": 64, "N": 64},), ("f32",), budget=Budget(25))


def event(number: int) -> TrialFinished:
    trial = Trial(number=number, config={"ROWS": number}, status="failed", phase="screen")
    return TrialFinished({"M": 64, "N": 64}, "f32", trial, None)


def test_trials_come_back(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        assert journal.trials == []
        journal.append(JobStarted("k", "cpu", "random", 1, 25, None))
        journal.append(event(0))
        journal.append(event(1))
    with Journal(tmp_path, SPEC) as journal:
        assert [trial.number for _, _, trial in journal.trials] == [0, 1]
        journal.append(event(2))
    assert len(list(read_events(tmp_path / "journal.jsonl"))) == 4


def test_each_line_is_on_disk_when_the_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    path = tmp_path / "journal.jsonl"

    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == tmp_path.stat().st_ino:
            return  # the name of the new file
        assert os.fstat(descriptor).st_ino == path.stat().st_ino
        synced.append(len(path.read_bytes().splitlines()))

    monkeypatch.setattr("os.fsync", fsync)
    with Journal(tmp_path, SPEC) as journal:
        for number in range(3):
            journal.append(event(number))
            assert synced[-1] == number + 2  # the header is a line too
    assert synced == [1, 2, 3, 4]


def test_a_full_disk_is_no_surprise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(tmp_path, SPEC) as journal:
        journal.append(event(0))
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(JournalError, match=r"cannot write .*journal\.jsonl: No space left") as caught:
            journal.append(event(1))
        assert "it goes on" in (caught.value.hint or "")
    with Journal(tmp_path, SPEC) as journal:
        assert [trial.number for _, _, trial in journal.trials] == [0]


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_cut_off_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    with Journal(tmp_path, SPEC) as journal:
        journal.append(event(0))
        journal.append(event(1))
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(tmp_path, SPEC) as journal:
        assert [trial.number for _, _, trial in journal.trials] == [0]
        journal.append(event(7))
    with Journal(tmp_path, SPEC) as journal:
        assert [trial.number for _, _, trial in journal.trials] == [0, 7]


@pytest.mark.parametrize("left", [0, 1, 20])
def test_a_header_that_was_cut_off_is_written_again(tmp_path: Path, left: int) -> None:
    Journal(tmp_path, SPEC).close()
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    Journal(tmp_path, SPEC).close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("foreign", [b"hello", b'{"trials": [1, 2]}', b"x" * (1 << 20)])
def test_a_line_of_something_else_is_not_taken_for_a_header_that_was_cut_off(tmp_path: Path, foreign: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(foreign)
    with pytest.raises(JournalError, match="not a journal of this job"):
        Journal(tmp_path, SPEC)
    assert path.read_bytes() == foreign


def test_damage_in_the_middle_names_the_line(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        journal.append(event(0))
        journal.append(event(1))
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:30] + b"\n" + lines[2])
    with pytest.raises(JournalError, match="line 2") as caught:
        Journal(tmp_path, SPEC)
    assert caught.value.hint == "delete it to start again"


def test_budget_may_change_the_rest_may_not(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC) as journal:
        journal.append(event(0))
    with Journal(tmp_path, replace(SPEC, budget=Budget(50, 3.0))) as journal:
        assert len(journal.trials) == 1
    with pytest.raises(JournalError, match="belongs to another job"):
        Journal(tmp_path, replace(SPEC, seed=1))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal.jsonl").write_text("hello\n")
    with pytest.raises(JournalError, match="not a journal"):
        Journal(tmp_path / "other", SPEC)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b'{"journal":2,"job":"x","more":[]}', "a journal of version 2; this deuteron reads version 1"),
        (b'{"journal":1', "line 1: not valid JSON"),
        (b"[]", "line 1"),
    ],
)
def test_a_first_line_that_this_version_does_not_know(tmp_path: Path, header: bytes, says: str) -> None:
    """What follows may mean something else."""
    (tmp_path / "journal.jsonl").write_bytes(header + b"\n")
    with pytest.raises(SchemaError, match=says):
        list(read_events(tmp_path / "journal.jsonl"))
    with pytest.raises(JournalError, match=says):
        Journal(tmp_path, SPEC)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path, SPEC), pytest.raises(JournalError, match="another process"):
        Journal(tmp_path, SPEC)


# A search whose every trial takes 50 ms and whose times are made up; run in a process that is killed.
PROGRAM = """
import sys, time
from pathlib import Path
from deuteron.tuner.evaluate.messages import Compiled, Extended, Raced, Screened
from deuteron.tuner.job import Budget, JobSpec
from deuteron.tuner.local import tune_locally
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.workloads import builtin_workload

class Fake:
    exclusive, workers = True, 1
    def submit(self, config): pass
    def settle(self): pass
    def next_compiled(self, configs): return 0
    def must_wait(self, configs): return False
    def prepare_final(self, seed): pass
    def prepare_next_problem(self, problem, default): pass
    def extend(self, config, seed): return Extended("ok")
    def close(self): pass
    def compiled(self, config): return Compiled("ok", None, str(sorted(config.items())))
    def screen(self, config, best_ns, meanwhile):
        time.sleep(0.05)
        print("measured", flush=True)
        t = 1000.0 / config["ROWS"]
        return Screened("ok", time_ns=Interval(t, t, t, 7), reference="fake")
    def race(self, configs, *, rounds, seconds, seed, fresh):
        return Raced("ok", None, [[1000.0 / c["ROWS"]] * rounds for c in configs], [None] * len(configs))

spec = JobSpec(builtin_workload("softmax"), ({"M": 4096, "N": 64},), ("f32",), budget=Budget(25))
result = tune_locally(spec, emit=lambda event: None, folder=Path(sys.argv[1]), evaluator=lambda *a, **k: Fake())
print("resumed", result.resumed, "config", result.records[0].config["ROWS"], flush=True)
"""


def test_kill_nine_loses_no_finished_trial(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(6):
        assert process.stdout.readline() == "measured\n"
    # The sixth measurement has ended; five trials are certainly written.
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    survived = [e for e in read_events(tmp_path / "journal.jsonl") if isinstance(e, TrialFinished)]
    assert len(survived) >= 5
    began = time.monotonic()
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"resumed {len(survived)} config 16" in output
    assert output.count("measured") == 25 - len(survived)
    assert (tmp_path / "records.bundle").exists() and (tmp_path / "search.hatchet").exists()
    again = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert again.count("measured") == 0 and "config 16" in again
    assert time.monotonic() - began < 60
