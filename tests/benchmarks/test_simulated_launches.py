"""Launches on the CPU that are simulated for a GPU: what differs between the two is found, and nothing else."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_launches import Job, Settings, SimulatedLaunches, difference, differences

import deuteron
import deuteron.language as tl
from deuteron.compiler.runtime.launch.hooks import add_launch_hook, remove_launch_hook


@deuteron.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@deuteron.jit
def shift(out, values, by: tl.constexpr):
    i = tl.program_id(0) * 8 + tl.arange(0, 8)
    tl.store(out + i, tl.load(values + i) + by)


@deuteron.jit
def elsewhere(out, n, NEVER: tl.constexpr):
    """What is right on a CPU alone, in every way that shows."""
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    if tl.target_info.is_cuda():
        if NEVER == 1:
            tl.store(out + i + n, i)  # outside
        elif NEVER == 2:
            while tl.load(out, volatile=True) >= 0:
                n += 1  # for ever
        else:
            tl.store(out + i, i + 0.25 * (i == 5))
    else:
        tl.store(out + i, i)


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Any]:
    """``simulated(**settings)`` begins; called again without, it ends and gives what the journal says."""
    hooks: list[SimulatedLaunches] = []
    journal = tmp_path / "launches"

    def begin_or_end(**settings: Any) -> list[dict[str, Any]]:
        if settings:
            hooks.append(SimulatedLaunches(Settings("cuda:90a", **settings), journal))
            add_launch_hook(hooks[-1])
            return []
        hooks[-1].finish()
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []

    yield begin_or_end
    for hook in hooks:
        remove_launch_hook(hook)


def outcomes(results: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(result["kernel"], result["outcome"]) for result in results]


def test_a_variant_is_simulated_once_and_the_launch_is_as_it_was(simulated) -> None:
    simulated(seconds=60, schedules=3)
    x = np.arange(100, dtype=np.float32)
    out = np.zeros_like(x)
    for _ in range(3):
        add[(4,)](x, x, out, 100, BLOCK=32)
    np.testing.assert_array_equal(out, 2 * x)
    results = simulated()
    assert outcomes(results) == [("add", "good")] * 3 and results[0]["grid"] == [4, 1, 1]
    assert len({result["schedule"] for result in results}) > 1


def test_of_large_grids_some_programs_run_on_both_sides(simulated) -> None:
    simulated(programs=3)
    x = np.arange(4096, dtype=np.int64)
    out = np.zeros_like(x)
    add[(128,)](x, x, out, 4096, BLOCK=32)
    np.testing.assert_array_equal(out, 2 * x)
    assert outcomes(simulated()) == [("add", "good")]


def test_arrays_that_are_parts_of_one_share_memory(simulated) -> None:
    simulated(programs=64)
    whole = np.arange(40, dtype=np.float64)
    shift[(4,)](whole[8:], whole, 1)  # each program reads what the one before it wrote
    assert outcomes(simulated()) == [("shift", "good")]


@pytest.mark.parametrize(
    ("never", "outcome", "text"),
    [(0, "wrong", "out (f32): error"), (1, "failed", "outside every array"), (2, "late", "SIGALRM")],
)
def test_what_a_gpu_does_otherwise_is_found(simulated, tmp_path: Path, never: int, outcome: str, text: str) -> None:
    simulated(seconds=5, keep=tmp_path / "keep")
    out = np.zeros(8, np.float32)
    elsewhere[(2,)](out, 64, NEVER=never)
    (result,) = simulated()
    assert (result["outcome"], text in result["text"]) == (outcome, True), result
    if outcome == "wrong":
        (kept,) = (tmp_path / "keep").iterdir()
        job: Job = pickle.loads(kept.read_bytes())
        assert text in "; ".join(differences(job, lambda denied: job.program))


def test_elements_that_neither_side_changed_do_not_count() -> None:
    before = np.full(64, 1e30, np.float32)
    got, wanted = before.copy(), before.copy()
    got[:8], wanted[:8] = 1.0, 1.0 + 1e-4
    raw = [piece.view(np.uint8) for piece in (got, wanted, before)]
    assert difference("f32", *raw, 0.003) == ""
    got[3] = 1.5
    assert "error 0.177" in difference("f32", *raw, 0.003)
    got[3] = np.nan
    assert "1 of 8 are not finite" in difference("f32", *raw, 0.003)
    wanted[3] = np.nan
    assert difference("f32", *raw, 0.003) == ""
    assert difference("i32", *raw, 0.003) and not difference("i32", raw[0], raw[0], raw[2], 0.0)


def test_a_child_that_was_waited_for_when_time_ran_out_is_forgotten(simulated: Any, monkeypatch: pytest.MonkeyPatch):
    """The alarm of a case may come when a child is gone and nobody knows it yet."""
    simulated(seconds=60)
    out = np.zeros(8, np.int32)
    shift[(1,)](out, np.arange(8, dtype=np.int32), by=1)
    wait = os.waitpid
    with monkeypatch.context() as patched:
        patched.setattr(os, "waitpid", lambda child, options: (wait(child, options), _run_out())[1])
        with pytest.raises(TimeoutError):
            simulated()
    assert [found["outcome"] for found in simulated()] == ["good"]


def _run_out() -> Any:
    raise TimeoutError
