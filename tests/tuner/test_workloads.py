"""Workloads against independent results: hand-computed values, and the interpreter as the kernels' definition."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest

from deuteron.compiler import DeviceProperties
from deuteron.tuner import BUILTINS, Problem, WorkloadSpec, builtin_workload
from deuteron.tuner.errors import WorkloadError
from deuteron.tuner.evaluate.check import interpret, small_problem
from deuteron.tuner.workloads import Tensor, Tolerance, workload_from_json
from deuteron.tuner.workloads.inputs import BLOCK, make_tensor, make_tensors
from deuteron.tuner.workloads.references import REFERENCES, find_reference
from deuteron.tuner.workloads.tolerance import TOLERANCES, Comparison, Expected, compare_all

CPU = DeviceProperties("some CPU", "cpu", sm_count=2)
H200 = DeviceProperties("NVIDIA H200", "cuda", sm_count=132, shared_bytes_per_block=232448)
SMALL = {
    "vector_add": {"n": 300},
    "softmax": {"M": 7, "N": 50},
    "layer_norm": {"M": 3, "N": 200},
    "matmul": {"M": 20, "N": 33, "K": 40},
}


def test_every_builtin_is_tested_here() -> None:
    assert set(SMALL) == set(BUILTINS)


@pytest.mark.parametrize("name", BUILTINS)
def test_json_round_trip(name: str) -> None:
    spec = builtin_workload(name)
    assert WorkloadSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert workload_from_json({"builtin": name}) == spec


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", BUILTINS)
def test_kernel_agrees_with_reference_under_the_interpreter(name: str, dtype: str) -> None:
    problem = Problem(builtin_workload(name), SMALL[name], dtype)
    config = problem.default(problem.space(CPU), "cpu")
    tensors = make_tensors(problem, 3)
    inputs = {n: v.astype(np.float64) for n, v in tensors.items()}
    expected = find_reference(problem.spec.reference)(inputs, problem.scalars)
    wanted = [
        Expected(t.name, expected[t.name], problem.tolerance_of(t)) for t in problem.spec.tensors if t.role == "output"
    ]
    comparison = compare_all(interpret(problem, config, tensors), wanted)
    assert comparison.ok, comparison.message


def test_references_on_values_computed_by_hand() -> None:
    x = np.array([[0.0, math.log(3.0)]])
    (soft,) = REFERENCES["softmax"]({"input_ptr": x}, {}).values()
    assert np.allclose(soft, [[0.25, 0.75]])
    row = np.array([[1.0, 3.0]])
    normal = REFERENCES["layer_norm"](
        {"x_ptr": row, "weight_ptr": np.array([1.0, 2.0]), "bias_ptr": np.array([0.0, 5.0])},
        {"eps": 0.0},
    )
    assert np.allclose(normal["y_ptr"], [[-1.0, 7.0]])
    assert normal["mean_ptr"] == [2.0] and normal["rstd_ptr"] == [1.0]
    (product,) = REFERENCES["matmul"]({"a_ptr": np.array([[1.0, 2.0]]), "b_ptr": np.array([[3.0], [4.0]])}, {}).values()
    assert product == [[11.0]]


@pytest.mark.parametrize(
    ("name", "dims", "dtype", "flops", "bytes_"),
    [
        ("vector_add", {"n": 1000}, "f32", 1000, 12000),
        ("softmax", {"M": 4, "N": 8}, "f16", 160, 128),
        ("layer_norm", {"M": 4, "N": 8}, "f32", 256, 4 * (64 + 16) + 32),
        ("matmul", {"M": 2, "N": 3, "K": 4}, "bf16", 48, 2 * (8 + 12 + 6)),
    ],
)
def test_flops_and_bytes(name: str, dims: dict[str, int], dtype: str, flops: int, bytes_: int) -> None:
    problem = Problem(builtin_workload(name), dims, dtype)
    assert (problem.flops, problem.bytes) == (flops, bytes_)


@pytest.mark.parametrize("device", [CPU, H200], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", BUILTINS)
def test_spaces_hold_the_default_and_fit_the_kernel(name: str, device: DeviceProperties) -> None:
    spec = builtin_workload(name)
    for shape in [*spec.shapes, SMALL[name], dict.fromkeys(spec.dims, 1)]:
        problem = Problem(spec, shape, "f32")
        space = problem.space(device)
        default = problem.default(space, device.kind)
        assert space.contains(default)
        assert problem.variant(default).grid[0] >= 1
    for shape in spec.shapes:
        space = Problem(spec, shape, "f32").space(device)
        assert space.nearest(spec.default_for(device.kind)) == spec.default_for(device.kind)
        assert (space.count() or 0) > 3


def test_shared_memory_of_the_device_limits_the_space() -> None:
    problem = Problem(builtin_workload("matmul"), {"M": 4096, "N": 4096, "K": 4096}, "bf16")
    small = DeviceProperties("x", "cuda", sm_count=10, shared_bytes_per_block=99 * 1024)
    assert (problem.space(small).count() or 0) < (problem.space(H200).count() or 0)
    for config in problem.space(small).configurations():
        tile = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"]  # type: ignore[operator]
        assert tile * 2 * config["num_stages"] <= 99 * 1024  # type: ignore[operator]


def test_scalars_get_the_types_that_launches_would_give_them() -> None:
    problem = Problem(builtin_workload("matmul"), {"M": 64, "N": 33, "K": 1}, "f32")
    signature = problem.variant(problem.default(problem.space(CPU), "cpu")).signature
    assert signature["M"] == "i32:16" and signature["N"] == "i32" and signature["K"] == "i32:1"
    assert signature["a_ptr"] == "*f32:16"
    large = Problem(builtin_workload("vector_add"), {"n": 2**31}, "f32")
    assert large.variant({"BLOCK_SIZE": 1024}).signature["n_elements"] == "i64:16"


def test_inputs_are_seeded_and_outputs_poisoned() -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 1000}, "bf16")
    a, b, c = (make_tensors(problem, seed) for seed in (1, 1, 2))
    assert np.array_equal(a["x_ptr"], b["x_ptr"]) and not np.array_equal(a["x_ptr"], c["x_ptr"])
    assert not np.array_equal(a["x_ptr"], a["y_ptr"])
    assert np.isnan(a["output_ptr"].astype(np.float32)).all()
    assert abs(float(a["x_ptr"].astype(np.float64).std()) - 1) < 0.1


@pytest.mark.parametrize("fill", ["normal", "uniform", "zeros", "arange", "randint"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "i8", "i1", "f8e4m3"])
def test_every_fill_in_every_kind_of_dtype(fill: str, dtype: str) -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 64}, "f32")
    tensor = Tensor("t", ("n", "2"), dtype=dtype, fill=fill)
    array = make_tensor(problem, tensor, np.random.default_rng(0))
    assert array.shape == (64, 2) and array.flags.c_contiguous


def test_large_inputs_are_made_quickly_without_aliasing_strides() -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 1 << 25}, "f32")
    began = time.perf_counter()
    tensor = make_tensor(problem, problem.spec.tensors[0], np.random.default_rng(0))
    assert time.perf_counter() - began < 5
    assert all(BLOCK % p for p in range(2, math.isqrt(BLOCK) + 1))  # prime
    for shift in (1 << 20, 1 << 22, 1 << 24):
        assert not np.array_equal(tensor[:4096], tensor[shift : shift + 4096])


def compare(name: str, got: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> Comparison:
    return Expected(name, expected, tolerance).compare(got)


def test_comparison_is_relative_to_the_size_of_the_values() -> None:
    expected = np.full((4, 4), 1e-3)
    good, bad = expected * (1 + 1e-6), expected * 1.1
    tolerance = TOLERANCES["f32"]
    assert compare("y", good, expected, tolerance).ok
    assert not compare("y", bad, expected, tolerance).ok


def test_comparison_says_what_is_wrong_where() -> None:
    expected = np.ones((3, 5))
    got = expected.copy()
    got[2, 1] = 1.5
    message = compare("y", got, expected, Tolerance(0.0, 0.01)).message
    assert message is not None
    assert message.startswith("output 'y': 1 of 15 elements are wrong; the worst at [2, 1]: got 1.5, expected 1")
    got[0, 0] = np.nan
    message = compare("y", got, expected, Tolerance(0.0, 0.01)).message
    assert message is not None and "2 of 15" in message and "never written?" in message


def test_comparison_of_special_values() -> None:
    special = np.array([np.inf, -np.inf, np.nan, 1.0])
    tolerance = Tolerance(1e-3, 1e-3)
    assert compare("y", special, special, tolerance).ok
    assert not compare("y", np.array([1.0, -np.inf, np.nan, 1.0]), special, tolerance).ok
    assert not compare("y", np.array([np.inf, -np.inf, 0.0, 1.0]), special, tolerance).ok
    assert not compare("y", np.array([np.inf, np.inf, np.nan, 1.0]), special, tolerance).ok
    zeros = np.zeros(3)
    assert compare("y", zeros, zeros, tolerance).ok
    assert compare("i", np.array([1, 2, 3]), np.array([1, 2, 3]), Tolerance(0, 0)).ok
    assert not compare("i", np.array([1, 2, 4]), np.array([1, 2, 3]), Tolerance(0, 0)).ok


def test_reduced_problem_keeps_divisibility() -> None:
    problem = Problem(builtin_workload("matmul"), {"M": 4096, "N": 1001, "K": 40}, "f32")
    assert small_problem(problem).dims == {"M": 96, "N": 105, "K": 40}


def test_unknown_names() -> None:
    with pytest.raises(WorkloadError, match="unknown workload 'softmx'"):
        builtin_workload("softmx")
    with pytest.raises(WorkloadError, match="unknown reference 'x'"):
        find_reference("x")
