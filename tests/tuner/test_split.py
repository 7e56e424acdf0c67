"""Jobs that are dealt out: together they search what the one would have, for as long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.tuner import Budget, JobSpec
from deuteron.tuner.errors import JobError
from deuteron.tuner.job import shape_key
from deuteron.tuner.workloads import builtin_workload

SOFTMAX = builtin_workload("softmax")


def job(shapes: int, seconds: float | None = None) -> JobSpec:
    dims = tuple({"M": 8, "N": n} for n in range(1, shapes + 1))
    return JobSpec(SOFTMAX, dims, ("f32",), "cpu", Budget(7, seconds), seed=3)


@given(st.integers(1, 40), st.integers(1, 50), st.none() | st.floats(1, 100))
def test_nothing_is_lost_or_doubled(shapes: int, jobs: int, seconds: float | None) -> None:
    whole = job(shapes, seconds)
    parts = whole.split(jobs)
    assert len(parts) == min(jobs, shapes)
    assert sorted(shape_key(s) for part in parts for s in part.shapes) == sorted(map(shape_key, whole.shapes))
    assert max(len(part.shapes) for part in parts) - min(len(part.shapes) for part in parts) <= 1
    for part in parts:
        assert (part.dtypes, part.device, part.seed, part.budget.trials) == (("f32",), "cpu", 3, 7)
        if seconds is not None:
            assert part.budget.seconds == pytest.approx(seconds * len(part.shapes) / shapes)
        else:
            assert part.budget.seconds is None


def test_large_and_small_shapes_are_dealt_out_evenly() -> None:
    sizes = [8, 16, 32, 64, 128, 256, 512, 1024]
    matmul = JobSpec(builtin_workload("matmul"), tuple({"M": m, "N": 64, "K": 64} for m in sizes), ("f32",))
    parts = [[shape["M"] for shape in part.shapes] for part in matmul.split(2)]
    assert parts == [[1024, 128, 64, 8], [512, 256, 32, 16]]


def test_one_part_is_the_job_itself() -> None:
    assert job(5, 10.0).split(1) == [job(5, 10.0)]


def test_there_is_no_split_into_none() -> None:
    with pytest.raises(JobError, match="0 jobs"):
        job(5).split(0)
