"""A configuration that never ends, measured by the real worker: its process is killed, the trial is labelled, and the
device serves the next process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Budget, JobSpec, Problem, resolve_workload, tune_locally
from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.events import TrialFinished, TuneEvent
from deuteron.tuner.workloads import WorkloadSpec

KERNEL = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr, HANG: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if HANG:
        while n > 0:  # waits for ever; the atomic keeps the loop from being removed
            tl.atomic_add(y_ptr, 0.0)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n) * 2, mask=o < n)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"BLOCK": [64, 128], "HANG": [0, 1]}},
}
"""
#: Enough for a small kernel, on a busy machine too; a hang costs it once, and a core: there is one program.
SECONDS = 3.0

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]


@pytest.fixture
def workload(tmp_path: Path) -> WorkloadSpec:
    path = tmp_path / "mine.py"
    path.write_text(KERNEL)
    return resolve_workload(f"{path}:double")


def local(problem: Problem, device: object, default: object, seed: int, patience: float = 300.0) -> LocalEvaluator:
    name = str(getattr(device, "name", device))
    where = get_device(name)
    kind = where.properties.kind
    limits = {"timeout": SECONDS, "patience": patience}
    return LocalEvaluator(problem, name, where.target, kind, default, seed, **limits)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_the_process_is_killed_and_the_next_one_measures(workload: WorkloadSpec, told: Any, device: str) -> None:
    made = local(Problem(workload, {"n": 60}, "f32"), device, {"BLOCK": 64, "HANG": 0}, 0)
    good, hangs = {"BLOCK": 64, "HANG": 0}, {"BLOCK": 64, "HANG": 1}
    try:
        assert made.screen(good, None).status == "ok"
        pid = told.measured().pid
        began = time.monotonic()
        screened = made.screen(hangs, None)
        assert (screened.status, screened.time_ns) == ("timeout", None)
        assert SECONDS <= time.monotonic() - began < SECONDS + 30
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        after = made.screen(good, None)
        assert after.status == "ok" and after.time_ns is not None
        assert told.measured().pid != pid
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_search_goes_on_after_a_hang(workload: WorkloadSpec, device: str, tmp_path: Path) -> None:
    spec = JobSpec(workload, ({"n": 60},), ("f32",), device, Budget(4), "exhaustive")
    events: list[TuneEvent] = []
    result = tune_locally(spec, emit=events.append, folder=tmp_path / "out", evaluator=local)
    trials = [e.trial for e in events if isinstance(e, TrialFinished)]
    status = {(t.config["BLOCK"], t.config["HANG"]): t.status for t in trials if t.phase == "screen"}
    assert status == {(64, 0): "ok", (64, 1): "timeout", (128, 0): "ok", (128, 1): "timeout"}
    assert all("no result after" in str(t.error) for t in trials if t.status == "timeout")
    (record,) = result.records
    assert record.config["HANG"] == 0


@pytest.mark.slow
def test_a_default_that_hangs_is_waited_for_once(workload: WorkloadSpec) -> None:
    """Preparing runs it; the others are told why they cannot be measured, at once."""
    made = local(Problem(workload, {"n": 60}, "f32"), "cpu", {"BLOCK": 64, "HANG": 1}, 0, SECONDS)
    try:
        first = made.screen({"BLOCK": 64, "HANG": 0}, None)
        assert first.status == "timeout" and f"not prepared after {SECONDS:g} s" in str(first.error)
        began = time.monotonic()
        assert made.screen({"BLOCK": 128, "HANG": 0}, None).status == "timeout"
        assert time.monotonic() - began < 1
    finally:
        made.close()
