"""The process in which a service trains, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from deuteron.server.learning import child, process
from deuteron.server.learning.child import publish
from deuteron.server.learning.messages import Train, Trained
from deuteron.server.learning.process import Stopped, TrainingFailed, train_in_child
from deuteron.server.predictors import FILE_NAME
from deuteron.tuner.errors import BundleError
from deuteron.tuner.learn import LearnError, kernel_hash_of
from deuteron.tuner.records import Predictor, read_bundle
from deuteron.tuner.workloads import builtin_workload

KERNEL = kernel_hash_of(builtin_workload("matmul"))


def test_a_damaged_file_stays_as_it_is(tmp_path: Path, predictor: Callable[..., Predictor]) -> None:
    path = tmp_path / FILE_NAME
    publish(path, [predictor()])
    publish(path, [predictor(kernel_hash="cd" * 32)])
    newer = predictor(trials=99)
    publish(path, [newer])
    assert newer in list(read_bundle(path).predictors()) and len(list(read_bundle(path).predictors())) == 2
    damaged = path.read_bytes()[:-10]
    path.write_bytes(damaged)
    with pytest.raises(BundleError, match="truncated"):
        publish(path, [predictor()])
    assert path.read_bytes() == damaged


@pytest.fixture
def request_of(tmp_path: Path) -> Train:
    return Train(f"sqlite:///{tmp_path}/none.db", KERNEL, str(tmp_path / FILE_NAME), 0.3)


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("import time; time.sleep(60)", "more than 0.3 s.*\nhint: DEUTERON_LEARN_SECONDS"),
        ("import os; os.abort()", "SIGABRT"),
        ("print('hello', flush=True); input()", "nonsense"),
    ],
)
def test_a_child_that_fails(request_of: Train, monkeypatch: pytest.MonkeyPatch, code: str, part: str) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-S", "-c", code))
    seconds = 0.3 if "sleep" in code else 20.0
    with pytest.raises(TrainingFailed, match=part):
        train_in_child(with_fields(request_of, seconds=seconds), threading.Event())


def test_a_child_that_is_stopped(request_of: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-S", "-c", "import time; time.sleep(60)"))
    stopping = threading.Event()
    stopping.set()
    begun = time.monotonic()
    with pytest.raises(Stopped):
        train_in_child(with_fields(request_of, seconds=50.0), stopping)
    assert time.monotonic() - begun < 5


def test_a_child_gives_way_and_ends_with_its_server(request_of: Train, tmp_path: Path) -> None:
    """The real one, whose training takes for ever, of a server that is killed."""
    pid_file = tmp_path / "pid"
    hangs = f"""
import os, pathlib, time
from deuteron.server.learning import child
def train(request):
    pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()) + "\\n")
    time.sleep(60)
child.load_lightgbm, child.train = lambda: None, train
child.main()
"""
    server = f"""
import sys, threading
from deuteron.server.learning import process
from deuteron.server.learning.messages import Train
process.COMMAND = (sys.executable, "-P", "-c", {hangs!r})
process.train_in_child(Train.from_json({with_fields(request_of, seconds=50.0).to_json()!r}), threading.Event())
"""
    parent = subprocess.Popen([sys.executable, "-P", "-c", server])
    try:
        wait_for(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), 60)
        pid = int(pid_file.read_text())
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19 and is_alive(pid)
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not is_alive(pid), 10)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Running, and not a zombie that nobody reaps in a container without init."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_what_a_child_answers_where_it_cannot_train(request_of: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    alarms: list[int] = []
    monkeypatch.setattr(child.signal, "alarm", alarms.append)
    monkeypatch.setattr(child, "load_lightgbm", lambda: None)
    monkeypatch.setattr(child, "known_kernel", lambda tx, kernel_hash: None)
    assert child._answer(request_of) == Trained() and alarms == [2]
    Path(request_of.bundle).write_text("damaged")
    monkeypatch.setattr(child, "train", lambda request: publish(Path(request.bundle), []))
    assert "truncated" in (child._answer(request_of).error or "")

    def refuse() -> None:
        raise LearnError("LightGBM cannot be loaded: libgomp", hint="apt-get install libgomp1")

    monkeypatch.setattr(child, "load_lightgbm", refuse)
    assert child._answer(request_of).unavailable == "LightGBM cannot be loaded: libgomp (apt-get install libgomp1)"
