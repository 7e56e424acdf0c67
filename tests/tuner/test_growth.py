"""Which configurations are right at larger shapes is tried: with a reference in NumPy, and without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from deuteron.compiler.runtime.device import Device, DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Problem, builtin_workload, resolve_workload
from deuteron.tuner.evaluate import growth
from deuteron.tuner.evaluate.messages import Extended
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import WorkloadSpec

HEAD = "import deuteron as triton\nimport deuteron.language as tl\n\n\n@triton.jit\n"

ROWS = """
def kernel(x_ptr, y_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for r in range(ROWS):
        row = tl.program_id(0) * ROWS + r
        x = tl.load(x_ptr + row * N + i, (i < N) & (row < M), 0.0)
        tl.store(y_ptr + row, tl.sum(x, 0), row < M)


workload = {
    "dims": ["M", "N"],
    "tensors": [{"name": "x_ptr", "shape": ["M", "N"]}, {"name": "y_ptr", "shape": ["M"], "role": "output"}],
    "scalars": {"M": "M", "N": "N"},
    "grid": ["cdiv(M, ROWS)"],
    "space": {"parameters": {"ROWS": [1, 2, 4], "BLOCK": [256, 512, 1024, 4096]}},
}
"""

FLAT = """
def kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + i, i < M * N, 0.0), 0))


workload = {
    "dims": ["M", "N"],
    "tensors": [{"name": "x_ptr", "shape": ["M", "N"]}, {"name": "y_ptr", "shape": ["1"], "role": "output"}],
    "scalars": {"M": "M", "N": "N"},
    "grid": ["1"],
    "space": {"parameters": {"BLOCK": [1024, 2048]}},
}
"""

EVEN = """
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    for start in range(0, n if not EVEN else n // BLOCK * BLOCK, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + i, tl.load(x_ptr + i, i < n) + 1, i < n)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["1"],
    "space": {"parameters": {"BLOCK": [64], "EVEN": [True, False]}},
}
"""


TRUE = """
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n) > -100, i < n)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output", "dtype": "i1"}],
    "scalars": {"n": "n"},
    "grid": ["1"],
    "space": {"parameters": {"BLOCK": [256]}},
}
"""

MORE = """
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n) + 1, (i < n) | ((n > 300) & (i == n)))


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"BLOCK": [64]}},
}
"""


MASKED = """
def kernel(x_ptr, y_ptr, M, N, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + i, i < N, 0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x if MASKED else tl.sqrt(x * 0.0 - 1.0), 0))


workload = {
    "dims": ["M", "N"],
    "tensors": [{"name": "x_ptr", "shape": ["M", "N"]}, {"name": "y_ptr", "shape": ["M"], "role": "output"}],
    "scalars": {"M": "M", "N": "N"},
    "grid": ["M"],
    "space": {"parameters": {"MASKED": [True, False], "BLOCK": [256, 512, 4096]}},
}
"""


@pytest.fixture
def described(tmp_path: Path):  # type: ignore[no-untyped-def]
    def make(text: str) -> WorkloadSpec:
        path = tmp_path / "mine.py"
        path.write_text(HEAD + text.lstrip("\n"))
        return resolve_workload(f"{path}:kernel")

    return make


@pytest.fixture(autouse=True)
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found depends on no clock, on a busy machine either."""
    monkeypatch.setattr(growth, "SECONDS", 300.0)


def extended(spec: WorkloadSpec, shape: dict[str, int], config: Configuration, dtype: str = "f32") -> Extended:
    return growth.extend(Problem(spec, shape, dtype), get_device("cpu"), config, seed=3)


def test_a_block_that_covers_a_row_is_right_up_to_its_size(described) -> None:  # type: ignore[no-untyped-def]
    spec = described(ROWS)
    found = extended(spec, {"M": 10, "N": 250}, {"ROWS": 2, "BLOCK": 256})
    assert found.sizes == {"M": 79} and found.doubts["N"].startswith("it is wrong at M=10, N=")
    assert extended(spec, {"M": 10, "N": 250}, {"ROWS": 2, "BLOCK": 512}).sizes == {"M": 79}
    found = extended(spec, {"M": 10, "N": 250}, {"ROWS": 1, "BLOCK": 4096})
    assert (found.sizes, found.together) == ({"M": 79, "N": 1999}, True)


def test_numbers_are_varied_where_a_truth_value_may_not_be(described) -> None:  # type: ignore[no-untyped-def]
    """Without its mask the kernel gives NaN, which says nothing of the block that covers a row by itself."""
    spec = described(MASKED)
    found = extended(spec, {"M": 10, "N": 250}, {"MASKED": True, "BLOCK": 256})
    assert found.sizes == {"M": 79} and found.doubts["N"].startswith("it is wrong at M=10, N=")
    assert "N" in extended(spec, {"M": 10, "N": 250}, {"MASKED": True, "BLOCK": 4096}).sizes


def test_truth_values_that_are_not_written_are_not_right(described) -> None:  # type: ignore[no-untyped-def]
    """Though poison is true, as is what is expected."""
    found = extended(described(TRUE), {"n": 200}, {"BLOCK": 256})
    assert found.sizes == {} and found.doubts["n"].startswith("it leaves results unwritten, or NaN, at n=")


def test_what_is_written_outside_at_a_larger_shape_is_seen(described) -> None:  # type: ignore[no-untyped-def]
    found = extended(described(MORE), {"n": 200}, {"BLOCK": 64})
    assert found.sizes == {} and found.doubts["n"].startswith("it wrote 4 bytes behind 'y_ptr' at n=")


def test_with_a_constraint_it_is_tried_up_to_where_that_holds(described) -> None:  # type: ignore[no-untyped-def]
    spec = described(ROWS)
    spec = replace(spec, spaces={"any": replace(spec.spaces["any"], constraints=("BLOCK >= N",))})
    found = extended(spec, {"M": 10, "N": 250}, {"ROWS": 2, "BLOCK": 256})
    assert found.sizes == {"M": 79, "N": 256}
    assert (
        extended(spec, {"M": 10, "N": 256}, {"ROWS": 2, "BLOCK": 256}).doubts["N"].startswith("no larger one is legal")
    )


def test_a_block_that_covers_two_sizes_together_is_right_for_one_larger_one(described) -> None:  # type: ignore[no-untyped-def]
    found = extended(described(FLAT), {"M": 10, "N": 10}, {"BLOCK": 1024})
    assert (found.sizes, found.together) == ({"M": 79, "N": 79}, False)


def test_a_truth_value_that_holds_for_multiples_alone_is_found(described) -> None:  # type: ignore[no-untyped-def]
    spec = described(EVEN)
    assert extended(spec, {"n": 128}, {"BLOCK": 64, "EVEN": True}).sizes == {}
    assert extended(spec, {"n": 128}, {"BLOCK": 64, "EVEN": False}).sizes == {"n": 1023}


@pytest.mark.parametrize("reference", ["matmul", "interpreter"])
def test_tiles_of_a_product_are_right_at_any_size(reference: str) -> None:
    spec = replace(builtin_workload("matmul"), reference=reference)
    spec = replace(spec, spaces={"cpu": replace(spec.spaces["cpu"], constraints=())})
    config = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}
    found = extended(spec, {"M": 1024, "N": 1024, "K": 1024}, config)
    assert all(found.sizes[dim] > 2000 for dim in "MNK") and found.together


def test_what_takes_too_long_or_is_too_large_is_not_assumed(described, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    spec, config = described(ROWS), {"ROWS": 2, "BLOCK": 4096}
    monkeypatch.setattr(growth, "MOST_ELEMENTS", 1000)
    found = extended(spec, {"M": 10, "N": 250}, config)
    assert found.sizes == {} and found.doubts["N"].endswith("or small enough to be tried")
    monkeypatch.undo()
    monkeypatch.setattr(growth, "SECONDS", 0.0)
    assert extended(spec, {"M": 10, "N": 250}, config).doubts["N"] == "time was up before a larger one was tried"


def test_what_is_tried_first_is_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one dimension after the other and of all, so that it can be compiled while others are timed."""
    problem = Problem(builtin_workload("matmul"), {"M": 64, "N": 64, "K": 64}, "f32")
    device, config = get_device("cpu"), problem.default(problem.full_space(get_device("cpu").properties), "cpu")
    tried: list[dict[str, int]] = []

    def right(growing: growth._Growing, larger: Problem) -> None:
        tried.append(dict(larger.dims))

    monkeypatch.setattr(growth._Growing, "_wrong_at", right)
    assert growth.extend(problem, device, config, seed=3).together
    variants = [*growth.FirstLarger(problem, device.properties, "cuda:90a")(config)]
    assert all((v.config, v.target, v.processors) == (config, "cuda:90a", device.properties.sm_count) for v in variants)
    first = [variant.problem for variant in variants]
    assert [larger.dims for larger in first] == tried
    assert [larger.dims[dim] for dim, larger in zip("MNK", first, strict=False)] == [511, 511, 511]
    assert [*first[3].dims.values()] == [511, 511, 511] and len(first) == 4


def test_what_the_cpu_will_run_is_known_before_too(described, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Without a reference: with the configurations that it is compared with, and no schedule, which is a GPU's."""
    problem = Problem(described(ROWS), {"M": 10, "N": 250}, "f32")
    config = {"ROWS": 2, "BLOCK": 4096, "num_warps": 8}
    ran: list[tuple[dict[str, int], Configuration]] = []
    run_once = growth.run_once

    def noted(larger: Problem, device: Device, other: Configuration, seed: int, turn: int = 0) -> growth.Ran:
        assert device is get_device("cpu")
        ran.append((dict(larger.dims), other))
        return run_once(larger, device, other, seed, turn)

    monkeypatch.setattr(growth, "run_once", noted)
    extended = growth.extend(problem, get_device("cpu"), config, seed=3)
    gpu = DeviceProperties("a GPU", "cuda", sm_count=132, compute_capability=(9, 0), shared_bytes_per_block=232448)
    variants = [*growth.FirstLarger(problem, gpu, "cuda:90a")(config)]
    assert [(dict(v.problem.dims), v.config) for v in variants] == ran and set(extended.sizes) == {"M", "N"}
    assert {(v.target, v.processors) for v in variants} == {("cpu", get_device("cpu").properties.sm_count)}
    assert [v.config for v in variants[:3]] == [
        {"ROWS": 2, "BLOCK": 4096},
        {"ROWS": 16, "BLOCK": 4096},
        {"ROWS": 2, "BLOCK": 32768},
    ]


def test_sizes_are_cut_no_further_than_constraints_allow() -> None:
    """A configuration of large products that constraints bind to large ones is tried at larger ones all the same."""
    gpu = DeviceProperties("a GPU", "cuda", sm_count=132, compute_capability=(9, 0), shared_bytes_per_block=232448)
    problem = Problem(builtin_workload("matmul"), {"M": 4096, "N": 4096, "K": 4096}, "bf16")
    schedule = {"num_warps": 8, "num_stages": 4, "persistent": True}
    config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, **schedule}
    larger_m, larger_n = (variant.problem for variant in growth.FirstLarger(problem, gpu, "cuda:90a")(config))
    assert larger_m.dims["M"] == 4 * 4096 - 1 and larger_n.dims["N"] == 4 * 4096 - 1
    for larger in (larger_m, larger_n):
        assert larger.full_space(gpu).contains(config)
        assert larger.elements <= growth.MOST_ELEMENTS and larger.dims["K"] < 4 * 4 * 64
