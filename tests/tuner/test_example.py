"""A workload read off a call: what it says is what the launch did, at other shapes, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import DeuteronError, LaunchError
from deuteron.tuner import Budget, JobSpec, Problem, RecordIndex, Workload, WorkloadSpec
from deuteron.tuner.errors import SpaceError, WorkloadError
from deuteron.tuner.space import Parameter
from deuteron.tuner.workloads.expressed import express, express_constexpr, express_grid


@triton.jit
def rms_norm(x_ptr, residual_ptr, weight_ptr, y_ptr, sum_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < N
    x = tl.load(x_ptr + row * N + i, mask, 0.0) + tl.load(residual_ptr + row * N + i, mask, 0.0)
    tl.store(sum_ptr + row * N + i, x, mask)
    scale = tl.rsqrt(tl.sum(x * x, 0) / N + eps)
    tl.store(y_ptr + row * N + i, x * scale * tl.load(weight_ptr + i, mask), mask)


@triton.jit
def dequantise(q_ptr, scale_ptr, out_ptr, N, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    scale = tl.load(scale_ptr + i // GROUP, mask)
    tl.store(out_ptr + i, tl.load(q_ptr + i, mask).to(tl.float32) * scale, mask)


@triton.jit
def transpose(x_ptr, y_ptr, M, N, x_stride, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (m[:, None] < M) & (n[None, :] < N)
    x = tl.load(x_ptr + m[:, None] * x_stride + n[None, :], mask)
    tl.store(y_ptr + n[None, :] * M + m[:, None], x, mask)


def rms_workload(**changes: Any) -> Workload:
    x = np.zeros((48, 300), np.float32)
    options: dict[str, Any] = {"grid": (48,), "dims": {"M": 48, "N": 300}, "search": {"BLOCK": [512, 1024]}, **changes}
    return Workload(rms_norm, x, x, np.ones(300, np.float32), np.empty_like(x), np.empty_like(x), 300, 1e-6, **options)


def test_rms_norm_with_residual() -> None:
    spec = rms_workload().spec
    assert spec.dims == ("M", "N")
    assert {t.name: (t.shape, t.role) for t in spec.tensors} == {
        "x_ptr": (("M", "N"), "input"),
        "residual_ptr": (("M", "N"), "input"),
        "weight_ptr": (("N",), "input"),
        "y_ptr": (("M", "N"), "output"),
        "sum_ptr": (("M", "N"), "output"),
    }
    assert (spec.scalars, spec.grid) == ({"N": "N", "eps": "1e-06"}, ("M",))
    problem = Problem(spec, {"M": 4096, "N": 1000}, "f32")
    assert problem.bytes == 4 * (4 * 4096 * 1000 + 1000)
    assert problem.variant({"BLOCK": 1024}).grid == (4096,)


def test_what_the_call_gives_is_the_default() -> None:
    assert rms_workload(BLOCK=1024).spec.defaults == {"any": {"BLOCK": 1024}}
    assert rms_workload().spec.defaults == {}
    searched = rms_workload(BLOCK=1024, search={"BLOCK": [512, 1024], "num_warps": [4, 8]}).spec
    assert searched.defaults == {"any": {"BLOCK": 1024, "num_warps": 4}}


def test_int8_dequantisation() -> None:
    n, group = 4096, 128
    workload = Workload(
        dequantise, np.zeros(n, np.int8), np.ones(n // group, np.float32), np.empty(n, np.float32), n,
        GROUP=group, grid=lambda meta: (triton.cdiv(n, meta["BLOCK"]),), search={"BLOCK": [256, 512, 1024]},
    )  # fmt: skip
    spec = workload.spec
    assert spec.dims == ("N",), "the only integer argument"
    assert {t.name: (t.shape, t.dtype, t.fill) for t in spec.tensors} == {
        "q_ptr": (("N",), "i8", "randint"),
        "scale_ptr": (("N // 128",), "$dtype", "normal"),
        "out_ptr": (("N",), "$dtype", "normal"),
    }
    assert spec.constexprs == {"GROUP": 128}
    assert spec.grid == ("cdiv(N, BLOCK)",)


def test_grids_of_two_axes_and_strides() -> None:
    x = np.zeros((64, 96), np.float16)
    grid: Any = lambda meta: (triton.cdiv(64, meta["BM"]), triton.cdiv(96, meta["BN"]))  # noqa: E731
    search = {"BM": [16, 32], "BN": [16, 32, 64]}
    spec = Workload(transpose, x, np.empty((96, 64), np.float16), 64, 96, 96, grid=grid, search=search).spec
    assert spec.dims == ("M", "N")
    assert spec.scalars == {"M": "M", "N": "N", "x_stride": "N"}
    assert spec.grid == ("cdiv(M, BM)", "cdiv(N, BN)")
    assert spec.dtypes == ("f16",)


@pytest.mark.parametrize(
    ("value", "text"),
    [(48, "M"), (300, "N"), (48 * 300, "M * N"), (150, "N // 2"), (600, "N * 2"), (7, "7"), (1, "1"), (24, "M // 2")],
)
def test_numbers_follow_dims(value: int, text: str) -> None:
    assert express(value, {"M": 48, "N": 300}, "it") == text


def test_numbers_that_could_be_two_things_are_refused() -> None:
    with pytest.raises(WorkloadError, match="both M and N"):
        express(64, {"M": 64, "N": 64}, "axis 0 of x")
    with pytest.raises(WorkloadError, match=r"both M \* K and N \* L"):
        express(120, {"M": 10, "N": 15, "K": 12, "L": 8}, "it")


def test_constexprs_follow_dims() -> None:
    dims = {"M": 48, "N": 300}
    assert express_constexpr(300, dims) == "N"
    assert express_constexpr(512, dims) == "next_power_of_2(N)"
    assert express_constexpr(128, dims) == 128
    assert express_constexpr(True, dims) is True
    assert express_constexpr("relu", dims) == "'relu'"


@pytest.mark.parametrize(
    "text", ["M", "cdiv(N, A)", "cdiv(M, A) * cdiv(N, B)", "M * cdiv(N, B)", "M * N", "cdiv(M * N, A)", "1", "8"]
)
def test_grids_are_found_again(text: str) -> None:
    from deuteron.tuner import Expression

    dims = {"M": 1000, "N": 777}
    configs = [{"A": a, "B": b} for a in (16, 64, 128) for b in (32, 256)]

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (int(Expression.parse(text).evaluate_int({**dims, **meta})),)

    (found,) = express_grid(grid, dims, configs)
    other = {"M": 4096, "N": 50}
    for config in configs:
        wanted = Expression.parse(text).evaluate({**other, **config})
        assert Expression.parse(found).evaluate({**other, **config}) == wanted


def test_a_grid_that_is_no_expression_is_refused() -> None:
    with pytest.raises(WorkloadError, match="no usual expression") as caught:
        rms_workload(grid=lambda meta: (meta["BLOCK"] ** 2 + 17,))
    assert caught.value.hint is not None and "grid=(" in caught.value.hint
    assert rms_workload(grid=("M * 3",)).spec.grid == ("M * 3",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"search": {"BLOKC": [1]}}, "no constexpr 'BLOKC'"),
        ({"NOTHING": 1}, "'NOTHING' is no argument"),
        ({"x_ptr": 1}, "'x_ptr' is given twice"),
        ({"search": {"BLOCK": 512}}, "512 is no list of choices of 'BLOCK'"),
        ({"search": {"BLOCK": "512"}}, "'512' is no list of choices"),
        ({"dims": {}}, "no integer argument"),
        ({"dims": {"M": 300, "N": 300}}, "both M and N"),
        ({"dims": {"M": None}}, "dims = "),
        ({"dims": 5}, "dims = 5"),
        ({"search": None}, "search = None"),
        ({"search": {5: [1]}}, "search = "),
        ({"constraints": "BLOCK >= N"}, "constraints = 'BLOCK >= N'"),
        ({"constraints": [None]}, r"constraints = \[None\]"),
        ({"flops": 5}, "flops = 5"),
        ({"grid": 64}, "grid = 64"),
        ({"grid": "M"}, "grid = 'M'"),
        ({"grid": lambda meta: meta["BLOCK"]}, "the function of the grid gives 512"),
        ({"grid": lambda meta: (1,) * (meta["BLOCK"] // 512)}, "the grid has 1 axes .* and another number"),
    ],
)
def test_bad_calls(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        rms_workload(**changes)


@pytest.mark.parametrize("choices", [[64, None], [None], [512, (1, 2)], [512, 1j], [512, b"a"]])
def test_choices_that_are_no_numbers_are_refused(choices: list[Any]) -> None:
    with pytest.raises(SpaceError, match="the parameter 'BLOCK' has .* as a choice"):
        rms_workload(search={"BLOCK": choices})


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    made = rms_workload(search={"BLOCK": 2 ** np.arange(9, 11)}, BLOCK=np.int64(1024))
    assert made.spec.defaults == {"any": {"BLOCK": 1024}}
    made.save(tmp_path / "made.json")
    rms_workload(search={"BLOCK": [512, 1024]}, BLOCK=1024).save(tmp_path / "plain.json")
    assert (tmp_path / "made.json").read_text() == (tmp_path / "plain.json").read_text()
    choices = (np.float32(0.5), np.float64(0.25), np.bool_(True), np.str_("a"))
    kinds = [type(choice) for choice in Parameter("A", choices, np.float64(0.25)).choices]
    assert kinds == [float, float, bool, str]


def test_what_is_no_kernel_is_refused() -> None:
    tuned = triton.autotune(configs=[triton.Config({"BLOCK": 512})], key=["N"])(rms_norm)
    for kernel, error, message in (
        (tuned, WorkloadError, "kernel = <Autotuner of rms_norm>"),
        (None, WorkloadError, "kernel = None"),
        (lambda x: x, LaunchError, "is a plain function"),
    ):
        with pytest.raises(error, match=message):
            Workload(kernel, grid=(1,), search={"BLOCK": [64]})
        if kernel is not tuned:
            with pytest.raises(LaunchError, match="no kernel"):
                triton.tuned(kernel, RecordIndex([]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": "5"}, "job.budget.trials: expected a whole number or null, found the text '5'"),
        ({"trials": 1.5}, "job.budget.trials: expected a whole number"),
        ({"seconds": "x"}, "job.budget.seconds"),
        ({"shapes": {"M": 64, "N": 300}}, "shapes = "),
        ({"shapes": [64]}, r"shapes = \[64\]"),
        ({"shapes": 5}, "shapes = 5"),
        ({"shapes": [{"M": 64.5, "N": 300}]}, r"job.shapes\[0\].M: expected a whole number"),
    ],
)
def test_bad_jobs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeuteronError, match=message):
        rms_workload().job(**changes)


def test_a_job_is_that_of_the_workload() -> None:
    made = rms_workload()
    job = made.job(shapes=[{"M": np.int64(128), "N": 200}], trials=None, seconds=2, seed=np.uint8(3))
    assert job == JobSpec(made.spec, ({"M": 128, "N": 200},), made.spec.dtypes, budget=Budget(None, 2.0), seed=3)
    assert made.job() == JobSpec(made.spec, made.spec.shapes, made.spec.dtypes)


def test_missing_and_unfit_arguments() -> None:
    x = np.zeros(64, np.float32)
    with pytest.raises(WorkloadError, match="gives 'N' of dequantise no value"):
        Workload(dequantise, x, x, x, grid=(1,), search={"BLOCK": [64]})
    with pytest.raises(WorkloadError, match="dtype complex64"):
        Workload(dequantise, x.astype(np.complex64), x, x, 64, GROUP=1, grid=(1,), search={"BLOCK": [64]})
    with pytest.raises(WorkloadError, match="no array and no number"):
        Workload(dequantise, None, x, x, 64, GROUP=1, grid=(1,), search={"BLOCK": [64]})


def test_a_search_with_it_ends_with_a_record(tmp_path: Path) -> None:
    workload = rms_workload()
    workload.save(tmp_path / "workload.json")
    read = WorkloadSpec.from_json(json.loads((tmp_path / "workload.json").read_text()))
    assert read == workload.spec
    result = workload.tune(shapes=[{"M": 8, "N": 200}], trials=2, seconds=20, folder=str(tmp_path / "out"))
    (record,) = result.records
    assert record.shape == {"M": 8, "N": 200} and record.checked
    assert result.bundle.is_file()
