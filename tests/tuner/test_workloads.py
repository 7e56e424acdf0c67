"""Workloads against independent results: hand-computed values, and the interpreter as the kernels' definition."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from ml_dtypes import bfloat16
from msgspec import structs

from deuteron.compiler import DeviceProperties
from deuteron.compiler.options import SCHEDULE_OPTIONS, effective_options
from deuteron.tuner import BUILTINS, Expression, Problem, WorkloadSpec, builtin_workload
from deuteron.tuner.errors import WorkloadError
from deuteron.tuner.evaluate.check import interpret
from deuteron.tuner.evaluate.cut import INTERPRETED_ELEMENTS, cut_problem, small_case
from deuteron.tuner.workloads import Tensor, workload_from_json
from deuteron.tuner.workloads.inputs import BLOCK, draw, make_tensors
from deuteron.tuner.workloads.references import REFERENCES, find_reference
from deuteron.tuner.workloads.tolerance import Expected, Tolerance, compare_all

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
    config = problem.default(problem.searched(CPU)[0], "cpu")
    tensors = make_tensors(problem, 3)
    inputs = {n: v.astype(np.float64) for n, v in tensors.items()}
    expected = find_reference(problem.spec.reference)(inputs, problem.scalars)
    wanted = [
        Expected(t.name, expected[t.name], problem.tolerance_of(t)) for t in problem.spec.tensors if t.role == "output"
    ]
    comparison = compare_all(interpret(problem, config, tensors), wanted)
    assert comparison.ok, comparison.message


def test_what_is_expected_of_the_kernel_itself_is_rounded_too() -> None:
    """Sums of products that are rounded to bf16 on the way, as attention's are, at two scales: of a million of them all
    are within twice the tolerance of each other, and not all within once."""
    rng = np.random.default_rng(7)
    own = structs.replace(builtin_workload("vector_add"), reference="interpreter")
    referred = Problem(builtin_workload("vector_add"), {"n": 1}, "bf16")
    once, twice = (problem.tolerance_of(own.tensors[-1]) for problem in (referred, Problem(own, {"n": 1}, "bf16")))
    assert (twice.atol, twice.rtol) == (2 * once.atol, 2 * once.rtol)
    worst = []
    for _ in range(16):
        p, v = rng.random((2048, 64)), rng.standard_normal((64, 32)).astype(bfloat16).astype(np.float64)
        results = []
        for peak in (1.0, 1.37):  # what scores are scaled by before they are rounded, as a block's largest one is
            rounded = (p * peak).astype(bfloat16).astype(np.float64)
            results.append(((rounded @ v) / peak).astype(bfloat16))
        worst.append(max(Expected("y", results[0], once).compare(results[1]).worst, 0.0))
        assert Expected("y", results[0], twice).compare(results[1]).ok
    assert max(worst) > 1
    given = structs.replace(own, tolerance=Tolerance(0.25, 0.5))
    assert Problem(given, {"n": 1}, "bf16").tolerance_of(own.tensors[-1]) == Tolerance(0.25, 0.5)


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
        space = problem.searched(device)[0]
        default = problem.default(space, device.kind)
        assert space.contains(default)
        assert problem.variant(default).grid[0] >= 1
    for shape in spec.shapes:
        space = Problem(spec, shape, "f16").searched(device)[0]
        assert space.nearest(spec.default_for(device.kind)) == spec.default_for(device.kind)
        assert (space.count() or 0) > 3


@pytest.mark.parametrize("device", [CPU, H200], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", BUILTINS)
def test_built_in_spaces_offer_only_options_that_change_code(name: str, device: DeviceProperties) -> None:
    spec = builtin_workload(name)
    space, default = spec.space_for(device.kind), spec.default_for(device.kind)
    mentioned = {*space.names, *default}.union(*(Expression.parse(text).names for text in space.constraints))
    assert mentioned & set(SCHEDULE_OPTIONS) <= set(effective_options(device.kind))
    assert Problem(spec, SMALL[name], "f32").idle_parameters(device.kind) == ()


@pytest.mark.parametrize("dim", ["a,b", "a=b", "", ".", "../../x", "a b", "a\nb", "<b>", "1x", "x" * 65])
def test_dims_are_names(dim: str) -> None:
    data = builtin_workload("vector_add").to_json()
    with pytest.raises(WorkloadError, match="is not a name"):
        WorkloadSpec.from_json({**data, "dims": ["n", dim]})


def test_scalars_get_the_types_that_launches_would_give_them() -> None:
    problem = Problem(builtin_workload("matmul"), {"M": 64, "N": 33, "K": 1}, "f32")
    signature = problem.variant(problem.default(problem.searched(CPU)[0], "cpu")).signature
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
    array = draw(problem, tensor, np.random.default_rng(0)).array()
    assert array.shape == (64, 2) and array.flags.c_contiguous


def test_large_inputs_are_made_quickly_without_aliasing_strides() -> None:
    problem = Problem(builtin_workload("vector_add"), {"n": 1 << 25}, "f32")
    began = time.perf_counter()
    tensor = draw(problem, problem.spec.tensors[0], np.random.default_rng(0)).array()
    assert time.perf_counter() - began < 5
    assert all(BLOCK % p for p in range(2, math.isqrt(BLOCK) + 1))  # prime
    for shift in (1 << 20, 1 << 22, 1 << 24):
        assert not np.array_equal(tensor[:4096], tensor[shift : shift + 4096])


def test_reduced_problem_keeps_divisibility() -> None:
    problem = Problem(builtin_workload("matmul"), {"M": 4096, "N": 1001, "K": 40}, "f32")
    assert cut_problem(problem, dict.fromkeys("MNK", 96)).dims == {"M": 96, "N": 105, "K": 40}
    default = problem.default(problem.searched(CPU)[0], "cpu")
    assert small_case(problem, CPU, default) == (cut_problem(problem, dict.fromkeys("MNK", 96)), default)


@pytest.mark.parametrize(
    ("axis", "size", "small"),
    [
        ("N // 128", 65536, 128),
        ("N // 128", 65536 + 64, 192),  # no multiple anyway
        ("N // 96", 9600, 96),
        ("N % 48 + 1", 4800, 96),
        ("N - 500", 4096, 768),
        ("N // 4096", 8192, 6144),
    ],
)
def test_reduced_sizes_stay_multiples_of_what_divides_them(axis: str, size: int, small: int) -> None:
    """Groups of weights that share a scale: a group must not be cut, and there must be one."""
    spec = copying([])
    scales = Tensor("s", (axis,))
    problem = Problem(structs.replace(spec, tensors=(*spec.tensors, scales)), {"M": 4096, "N": size}, "f32")
    cut, _ = small_case(problem, CPU, {"BLOCK": 128})
    assert cut.dims["N"] == small
    assert cut.tensor_shape(scales)[0] >= 1


@pytest.mark.parametrize(
    ("constraints", "block", "dims"),
    [
        ([], 1024, {"M": 96, "N": 104}),
        (["BLOCK <= N"], 1024, {"M": 96, "N": 1544}),
        (["N % BLOCK == 8"], 256, {"M": 96, "N": 776}),
        (["BLOCK <= N", "BLOCK <= 4 * M"], 1024, {"M": 384, "N": 1544}),
        (["BLOCK <= N and M >= 100"], 128, {"M": 192, "N": 200}),
        (["N == 4104"], 1024, {"M": 96, "N": 4104}),
    ],
)
def test_a_reduced_shape_satisfies_the_constraints_of_the_default(
    constraints: list[str], block: int, dims: dict[str, int]
) -> None:
    spec = copying(constraints)
    problem = Problem(spec, {"M": 4096, "N": 4104}, "f32")
    assert problem.full_space(CPU).contains({"BLOCK": block})
    small, config = small_case(problem, CPU, {"BLOCK": block})
    assert (small.dims, config) == (dims, {"BLOCK": block})


def test_a_reduced_shape_stays_small_where_a_smaller_configuration_is_valid() -> None:
    """A constraint that the default meets at very large shapes only: another configuration is interpreted."""
    problem = Problem(copying(["BLOCK < M * N // 2**14 or BLOCK == 128"]), {"M": 1 << 14, "N": 1 << 14}, "f32")
    small, config = small_case(problem, CPU, {"BLOCK": 8192})
    assert config == {"BLOCK": 128}
    assert INTERPRETED_ELEMENTS < small.elements <= 4 * INTERPRETED_ELEMENTS


def copying(constraints: list[str]) -> WorkloadSpec:
    """A kernel that copies the M x N matrix x to y in blocks of a row."""
    text = (
        "@triton.jit\ndef copy(x, y, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)\n"
        "    row = tl.program_id(0) * n\n"
        "    tl.store(y + row + at, tl.load(x + row + at, mask=at < n), mask=at < n)\n"
    )
    return WorkloadSpec.from_json(
        {
            "kernel": {"name": "copy", "source": text},
            "dims": ["M", "N"],
            "tensors": [{"name": "x", "shape": ["M", "N"]}, {"name": "y", "shape": ["M", "N"], "role": "output"}],
            "scalars": {"n": "N"},
            "grid": ["M", "cdiv(N, BLOCK)"],
            "space": {"parameters": {"BLOCK": [128, 256, 1024, 8192]}, "constraints": constraints},
        }
    )


def test_unknown_names() -> None:
    with pytest.raises(WorkloadError, match="unknown workload 'softmx'"):
        builtin_workload("softmx")
    with pytest.raises(WorkloadError, match="unknown reference 'x'"):
        find_reference("x")


def test_dims_are_derived_from_sizes_and_not_from_strides() -> None:
    """A stride equals a dim only while the tensor is contiguous; a launch may bring one that is not."""
    spec = builtin_workload("softmax")
    strided = structs.replace(spec, scalars={"row_stride": "N", "stride": "M", "n_cols": " N "}, dims_from_arguments={})
    output = next(tensor for tensor in spec.tensors if tensor.shape == ("M", "N"))
    assert strided.dims_from_arguments == {"M": f"{output.name}.shape[0]", "N": "n_cols"}
    without = structs.replace(spec, scalars={"row_stride": "N"}, dims_from_arguments={"M": "rows"})
    assert without.dims_from_arguments == {"M": "rows", "N": f"{output.name}.shape[1]"}
