"""Problems whose default says nothing of the other configurations are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from checked_kernel import TEXT, checker_of

from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.errors import WorkloadError
from deuteron.tuner.evaluate.check import Checker
from deuteron.tuner.evaluate.compilation import compile_variant
from deuteron.tuner.space import Configuration


def test_an_output_that_is_added_to_is_refused(tmp_path: Path) -> None:
    """Poison and a sum are poison for every configuration, right or wrong."""
    text = TEXT.replace("tl.store(y_ptr + o, y, mask=mask)", "tl.atomic_add(y_ptr + o, y, mask=mask)")
    (tmp_path / "adding.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'adding.py'}:kernel"), {"n": 1000}, "f32")
    with pytest.raises(WorkloadError, match="every element of the output 'y_ptr' unwritten or NaN"):
        checker_of(problem, seed=0)


ROWS = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.program_id(0) * N + i
    tl.store(y_ptr + at, tl.{function}(tl.load(x_ptr + at, i < N)), i < N)


workload = {{
    "dims": ["M", "N"],
    "tensors": [{{"name": "x_ptr", "shape": ["M", "N"]}}, {{"name": "y_ptr", "shape": ["M", "N"], "role": "{role}"}}],
    "scalars": {{"M": "M", "N": "N"}},
    "grid": ["{grid}"],
    "space": {{"parameters": {{"BLOCK": [64]}}}},
}}
"""


@pytest.mark.parametrize(
    ("function", "role", "grid", "refused"),
    [
        ("exp", "output", "cdiv(M, BLOCK)", True),
        ("exp", "inout", "cdiv(M, BLOCK)", False),  # what is not written is meant to stay
        ("exp", "output", "M", False),
        ("log", "output", "M - M // 8", False),  # NaN at half of the elements, unwritten an eighth
    ],
)
def test_an_output_that_is_hardly_written_is_refused(
    tmp_path: Path, function: str, role: str, grid: str, refused: bool
) -> None:
    """A grid with too few programs would make its own result the expected one."""
    (tmp_path / "rows.py").write_text(ROWS.format(function=function, role=role, grid=grid))
    problem = Problem(resolve_workload(f"{tmp_path / 'rows.py'}:kernel"), {"M": 200, "N": 50}, "f32")
    device, default = get_device("cpu"), {"BLOCK": 64}

    def compiled(config: Configuration) -> object:
        return compile_variant(problem, problem.variant(config), device.target), problem.variant(config)

    if refused:
        with pytest.raises(WorkloadError, match="writes only 200 of 10000 elements of the output 'y_ptr' at M=200"):
            Checker(problem, device, 1, default, compiled)  # type: ignore[arg-type]
    else:
        assert Checker(problem, device, 1, default, compiled).check(default).ok  # type: ignore[arg-type]


def test_a_default_that_writes_into_an_input_is_refused(tmp_path: Path) -> None:
    text = TEXT.replace("    if WRONG != 3:\n", "    tl.store(x_ptr + o, y, mask)\n    if WRONG != 3:\n")
    (tmp_path / "spoiling.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'spoiling.py'}:kernel"), {"n": 1000}, "f32")
    with pytest.raises(WorkloadError, match="changed 104 elements of the input 'x_ptr' at n=104") as caught:
        checker_of(problem)
    assert '"inout"' in str(caught.value.hint)
