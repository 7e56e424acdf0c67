"""Who disagrees with the default may be right: the interpreter says whether the default's numbers cover the shape."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.evaluate import contradiction
from deuteron.tuner.evaluate.contradiction import contradicted
from deuteron.tuner.evaluate.messages import Prepare, Screen
from deuteron.tuner.evaluate.session import ChildSession
from deuteron.tuner.evaluate.witnesses import Interpreted, votes
from deuteron.tuner.records.reach import Reach
from deuteron.tuner.space import Configuration

TEXT = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr, ROWS: tl.constexpr, HOW: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for r in range(ROWS):
        row = tl.program_id(0) * ROWS + r
        x = tl.load(x_ptr + row * N + i, i < N, {other})
        y = tl.{reduced}(x, 0)
        if HOW == 1 and BLOCK > 128:
            y += 1
        if HOW == 2 and BLOCK == 1024:
            y += N > 128
        if HOW != 3 or BLOCK >= N:
            tl.store(y_ptr + row, y)


workload = {{
    "dims": ["M", "N"],
    "tensors": [
        {{"name": "x_ptr", "shape": ["M", "N"]}},
        {{"name": "y_ptr", "shape": ["M"], "role": "output", "dtype": "{dtype}"}},
    ],
    "scalars": {{"N": "N"}},
    "grid": ["M // ROWS"],
    "space": {{
        "parameters": {{
            "BLOCK": [32, 64, 128, 256, 512, 1024],
            "ROWS": [1, 2],
            "HOW": [0, 1, 2, 3],
            "num_warps": [4, 8],
        }},
        "constraints": {constraints},
    }},
}}
"""


def described(
    tmp_path: Path, reduced: str = "sum", dtype: str = "f32", other: str = "0.0", constraints: tuple[str, ...] = ()
) -> Problem:
    path = tmp_path / "rows.py"
    path.write_text(TEXT.format(reduced=reduced, dtype=dtype, other=other, constraints=list(constraints)))
    return Problem(resolve_workload(f"{path}:kernel"), {"M": 4, "N": 250}, "f32")


def config(block: int, rows: int = 1, how: int = 0, warps: int = 4) -> Configuration:
    return {"BLOCK": block, "ROWS": rows, "HOW": how, "num_warps": warps}


def doubt(problem: Problem, default: Configuration, other: Configuration) -> str | None:
    space = problem.full_space(get_device("cpu").properties)
    return contradicted(problem, space, default, other, seed=1)


@pytest.mark.parametrize(
    ("reduced", "dtype", "other"), [("sum", "f32", "0.0"), ("argmax", "i32", "-1e9"), ("max", "f32", "-1e9")]
)
def test_a_default_that_does_not_cover_the_rows_is_found_out(
    tmp_path: Path, reduced: str, dtype: str, other: str
) -> None:
    said = doubt(described(tmp_path, reduced, dtype, other), config(32), config(256, warps=8))
    assert said is not None and "BLOCK=256" in said and "BLOCK=32" in said and "ROWS" not in said
    assert "at M=4, N=26, and something else at M=4, N=122" in said
    said = doubt(described(tmp_path, reduced, dtype, other), config(32), config(128, rows=2))
    assert said is not None and "BLOCK=128, ROWS=2" in said


@pytest.mark.parametrize(
    ("default", "other"),
    [
        (config(256), config(32)),  # smaller ones may not cover what the default does
        (config(256, rows=1), config(128, rows=2)),
        (config(32), config(32, rows=2)),  # wrong as the default is
        (config(256), config(256, warps=8)),
        (config(128), config(256, how=1)),  # another variant
        (config(128, how=1), config(256, how=1)),  # wrong at every shape
        (config(256, how=2), config(1024, how=2)),  # 512 gives what the default gives
        (config(512, how=2), config(1024, rows=2, how=2)),
    ],
)
def test_others_are_wrong_themselves(tmp_path: Path, default: Configuration, other: Configuration) -> None:
    assert doubt(described(tmp_path), default, other) is None


@pytest.mark.parametrize("block", [256, 512])
def test_a_default_that_all_others_contradict_is_found_out(tmp_path: Path, block: int) -> None:
    said = doubt(described(tmp_path), config(1024, how=2), config(block, how=2))
    assert said is not None and said.startswith("the default configuration is wrong at this shape: BLOCK=")
    assert f"BLOCK={768 - block}" in said and "BLOCK=2048 agree with it" in said


def test_no_witness_is_heard_after_the_time(tmp_path: Path) -> None:
    problem = described(tmp_path)
    space = problem.full_space(get_device("cpu").properties)
    interpreted = Interpreted(problem, Reach.of(space, problem.dims), 1)
    found = votes(interpreted, space, config(256), config(512), time.monotonic() + 100)
    assert found.default and not found.other
    interpreted = Interpreted(problem, Reach.of(space, problem.dims), 1)
    found = votes(interpreted, space, config(256), config(512), time.monotonic())
    assert not (found.default or found.other or found.neither)


def test_who_writes_nothing_is_no_witness(tmp_path: Path) -> None:
    """Most do not write a row of 500, and agree in that."""
    spec = described(tmp_path).spec
    assert doubt(Problem(spec, {"M": 4, "N": 1000}, "f32"), config(1024, how=3), config(256, how=3)) is None


def test_who_agrees_by_chance_is_no_witness(tmp_path: Path) -> None:
    """The largest of the first 32 numbers is that of the first 64 in every other row."""
    problem = described(tmp_path, "max", other="-1e9")
    problem = Problem(problem.spec, {"M": 1, "N": 250}, "f32")
    space = problem.full_space(get_device("cpu").properties)
    pairs = [(config(256), config(small)) for small in (32, 64, 128)]
    assert not any(contradicted(problem, space, *pair, seed) for pair in pairs for seed in range(6))


def test_what_the_interpreter_cannot_run_is_no_evidence(tmp_path: Path) -> None:
    problem = described(tmp_path, constraints=("BLOCK >= N",))
    assert doubt(problem, config(32), config(256)) is None  # legal at the small shape alone


def test_as_large_shapes_are_tried_as_there_is_time_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next is four times as large, and not begun where it would be done too late; nor one of too many elements."""
    problem = described(tmp_path)
    said = doubt(problem, config(128), config(256))
    assert said is not None and "something else at M=4, N=250" in said
    monkeypatch.setattr(contradiction, "SECONDS", 0.0)
    assert doubt(problem, config(128), config(256)) is None
    monkeypatch.undo()
    monkeypatch.setattr(contradiction, "MOST_ELEMENTS", 600)
    assert doubt(problem, config(128), config(256)) is None


def test_the_process_that_measures_says_so(tmp_path: Path) -> None:
    """Of who disagrees on the device; of nobody where NumPy gives what is expected."""
    problem, session = described(tmp_path), ChildSession()
    session.prepare(Prepare(problem.spec, problem.dims, "f32", "cpu", None, "cpu", config(64), 1))
    smaller, larger = session.screen(Screen(config(32))), session.screen(Screen(config(256)))
    assert (smaller.status, smaller.doubt) == ("wrong_result", None)
    assert larger.status == "wrong_result" and str(larger.doubt).startswith("the default configuration does not cover")
    assert session.screen(Screen(config(64))).status == "ok"
