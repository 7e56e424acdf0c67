"""Inferred spaces: what is in them compiles, differs and gives right results; what is left out has a reason."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from edited_kernels import kernel
from msgspec.structs import replace

from deuteron.compiler import KernelSource
from deuteron.compiler.errors import CompilationError
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.tuner import Problem
from deuteron.tuner.errors import JobError, SpaceError
from deuteron.tuner.evaluate.check import interpret
from deuteron.tuner.inference import (
    InferredSpace,
    device_of,
    infer_space,
    subject_of_kernel,
    subject_of_problem,
    with_inferred_space,
)
from deuteron.tuner.workloads.inferred import infer_workload
from deuteron.tuner.workloads.inputs import make_tensors

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
H200, ARCH = device_of("h200")
CPU, HOST = device_of("cpu")
OWN = """@triton.autotune(configs=[
    triton.Config({"P": p, "Q": 512, "R": 8, "S": s}, num_warps=16, num_stages=9) for p in (16, 1024) for s in (3,)
], key=[])
"""


def problem(dtype: str = "f16", text: str = "matmul", m: int = 112, n: int = 48, k: int = 80) -> Problem:
    spec = infer_workload(
        kernel(text),
        dims=("M", "N", "K"),
        tensors={"a_ptr": ("M", "K"), "b_ptr": ("K", "N"), "c_ptr": ("M", "N:output")},
        grid=("cdiv(M, P) * cdiv(N, Q)",),
        choices={name: (value,) for name, value in {"P": 32, "Q": 32, "R": 32, "S": 4}.items()},
    )
    return Problem(spec, {"M": m, "N": n, "K": k}, dtype)


def values(found: InferredSpace) -> dict[str, tuple[object, ...]]:
    return {p.name: p.choices for p in found.parameters if p.searched}


def test_a_product_on_a_gpu() -> None:
    found = infer_space(subject_of_problem(problem(), "cuda", ARCH, given={}), H200)
    assert set(values(found)) == {"P", "Q", "R", "S", "num_warps", "num_stages", "persistent"}
    assert max(values(found)["P"]) == 128  # covers M
    assert max(values(found)["Q"]) == 64
    space = found.bound()
    drawn = random.Random(0)
    subject = subject_of_problem(problem(), "cuda", ARCH, given={})
    for _ in range(3):
        config = space.sample(drawn)
        build(subject.variant(config), stop_after="llvm")  # raises where it does not compile or fit
    for config in itertools.islice(space.configurations(), 0, None, 37):
        p, q, r, warps, stages = (int(str(config[n])) for n in ("P", "Q", "R", "num_warps", "num_stages"))
        assert p * q <= 128 * 32 * warps
        assert stages * 2 * (p * r + r * q) <= 232448
        assert p <= 128 and q <= 64 and r <= 128


def test_loops_one_after_the_other_share_rings() -> None:
    """Causal attention walks over the keys before the diagonal, and then over those at it: 128 keys and 128 queries,
    its fastest tiles, have two slots of keys and values beside the queries."""
    source = KernelSource.from_file(EXAMPLES / "attention.py", "attention_forward")
    spec = infer_workload(
        source,
        dims=("H", "N"),
        tensors={
            **dict.fromkeys("QKV", ("H", "N", "128")),
            "Out": ("H", "N", "128:output"),
            "Lse": ("H", "N:output:f32"),
        },
        scalars={"N": "N", "scale": "0.1275"},
        constexprs={"HEAD": "128", "CAUSAL": "True"},
        grid=("cdiv(N, BLOCK_M)", "H"),
        choices={"BLOCK_M": (64,), "BLOCK_N": (64,)},
    )
    subject = subject_of_problem(Problem(spec, {"H": 8, "N": 4096}, "bf16"), "cuda", ARCH, given={})
    space = infer_space(subject, H200).bound()
    asked = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "persistent": False}
    assert [space.contains({**asked, "num_stages": stages}) for stages in (2, 3, 4)] == [True, True, False]
    made = build(subject.variant({**asked, "num_stages": 2}), stop_after="gpu")
    assert made.num_slots == 2


def test_what_is_offered_changes_code() -> None:
    """The two ends of every option, at one configuration or another, give other GPU IR."""
    subject = subject_of_kernel(kernel("matmul"), ARCH)
    found = infer_space(subject, H200)
    for option in (p for p in found.searched if p.role == "schedule"):
        codes = {
            str(build(subject.variant({**tile, option.name: value}), stop_after="gpu").artifacts["gpu"])
            for tile in ({"P": 64, "Q": 64, "R": 64, "S": 4},)
            for value in option.choices
        }
        assert len(codes) > 1, option.name


def test_options_need_a_reason() -> None:
    copy = infer_space(subject_of_kernel(kernel("copy"), ARCH), H200)
    reasons = {p.name: p.reason for p in copy.parameters if not p.searched}
    assert "is the same" in reasons["num_stages"]
    assert "num_warps" in values(copy)
    assert not {"num_warps", "num_stages", "persistent"} & set(
        values(infer_space(subject_of_kernel(kernel("copy"), HOST), CPU))
    )
    turns = kernel("copy", ("tl.store(y_ptr + at", "while tl.load(y_ptr) > 0:\n        pass\n    tl.store(y_ptr + at"))
    found = infer_space(subject_of_kernel(turns, ARCH), H200)
    assert "may wait for each other" in next(p.reason for p in found.parameters if p.name == "persistent")


def test_the_authors_configurations_are_candidates() -> None:
    """Also those that no rule would propose."""
    subject = subject_of_kernel(kernel("matmul", ("@triton.jit\ndef matmul", OWN + "@triton.jit\ndef matmul")), ARCH)
    assert len(subject.configs) == 2
    found = infer_space(subject, H200)
    assert len(found.configs) == 2
    space = found.bound()
    for config in subject.configs:
        assert space.contains({n: config.get(n, found_default(found, n)) for n in space.names})
    assert all("own" in c.reason for c in found.constraints if " or (" in c.text and "num_warps == 1" not in c.text)
    assert any("own" in c.reason for c in found.constraints)
    plain = infer_space(subject_of_kernel(kernel("matmul"), ARCH), H200)
    assert 1024 not in values(plain)["P"]


def found_default(found: InferredSpace, name: str) -> object:
    return next(p.default for p in found.parameters if p.name == name)


def test_results_decide_where_the_launch_is_known() -> None:
    """The rows of a tile may vary, the width of a head may not; a factor is none of both."""
    for text, searched in (("heads", {"ROWS"}), ("scale", {"BLOCK"}), ("skip", {"BLOCK"})):
        names = [a.name for a in kernel(text).arguments if a.constexpr]
        spec = infer_workload(
            kernel(text),
            dims=("n",),
            tensors={"x_ptr": ("n * 32",), "y_ptr": ("n * 2:output",)},
            grid=(f"cdiv(n, {'ROWS' if 'ROWS' in names else 'BLOCK'})",),
            choices={name: ({"ROWS": 16, "BLOCK": 16, "GROUP": 1}.get(name, 32),) for name in names},
        )
        found = infer_space(subject_of_problem(Problem(spec, {"n": 96}, "f32"), "cpu", HOST, given={}), CPU)
        assert set(values(found)) == searched


def test_results_of_the_interpreter_are_those_of_all_values() -> None:
    """Independent of the verdicts: every pair of ends of the inferred choices gives the product of NumPy."""
    described = problem("f32", m=20, n=17, k=33)
    found = infer_space(subject_of_problem(described, "cpu", HOST, given={}), CPU)
    spec = with_inferred_space(described.spec, found)
    small = Problem(spec, described.dims, "f32")
    ends = {name: (choices[0], choices[-1]) for name, choices in values(found).items()}
    tensors = make_tensors(small, 0)
    wanted = tensors["a_ptr"].astype("f8") @ tensors["b_ptr"].astype("f8")
    for point in itertools.islice(itertools.product(*ends.values()), 0, None, 3):
        got = interpret(small, dict(zip(ends, point, strict=True)), make_tensors(small, 0))["c_ptr"]
        assert abs(got - wanted).max() < 0.05  # f16 products of about 33 terms


@pytest.mark.parametrize("columns", ["K + 2 ** 40", "2 ** 64"])
def test_tensors_without_room_are_not_compared(columns: str) -> None:
    """They were made, and what NumPy says of that was a traceback."""
    wide = problem().spec
    wide = replace(wide, tensors=tuple(replace(t, shape=(*t.shape[:1], columns)) for t in wide.tensors))
    found = infer_space(subject_of_problem(Problem(wide, {"M": 8, "N": 8, "K": 8}, "f16"), "cpu", HOST, given={}), CPU)
    reasons = [p.reason for p in found.parameters if p.name in ("P", "Q")]
    assert all("results were not compared: K=8,M=8,N=8 f16 needs " in reason for reason in reasons), reasons


def test_a_grid_that_is_large_at_any_size_is_not_compared() -> None:
    """The interpreter ran program after program of it, for ever."""
    large = replace(problem().spec, grid=("2 ** 31 - 1",))
    found = infer_space(subject_of_problem(Problem(large, {"M": 8, "N": 8, "K": 8}, "f16"), "cpu", HOST, given={}), CPU)
    reasons = [p.reason for p in found.parameters if p.name in ("P", "Q")]
    assert all("not compared: K=8,M=8,N=8 has 2,147,483,647 programs" in reason for reason in reasons), reasons


def test_a_row_is_covered() -> None:
    """What covers an axis is an expression over the dims, so that the workload serves other shapes, too."""
    spec = infer_workload(
        kernel("whole_row"),
        dims=("m", "n"),
        tensors={"x_ptr": ("m", "n"), "y_ptr": ("m:output",)},
        grid=("m",),
        choices={"BLOCK_SIZE": (64, 128)},
    )
    found = infer_space(subject_of_problem(Problem(spec, {"m": 5, "n": 700}, "f32"), "cuda", ARCH, given={}), H200)
    block = next(p for p in found.parameters if p.name == "BLOCK_SIZE")
    assert (block.role, block.text, block.default) == ("extent", "next_power_of_2(n)", 1024)
    made = with_inferred_space(spec, found)
    plan = Problem(made, {"m": 5, "n": 3000}, "f32").variant(
        Problem(made, {"m": 5, "n": 3000}, "f32").full_space(H200).default()
    )
    assert plan.constexprs["BLOCK_SIZE"] == 4096


def test_given_values_stay() -> None:
    subject = subject_of_kernel(
        kernel("matmul"), ARCH, constexprs={"P": 128}, chosen={"Q": (32, 96), "num_warps": (4,)}
    )
    found = {p.name: p for p in infer_space(subject, H200).parameters}
    assert not found["P"].searched and found["P"].default == 128 and found["P"].reason == "given"
    assert found["Q"].choices == (32, 96)
    assert not found["num_warps"].searched


def test_nothing_to_search_is_said() -> None:
    found = infer_space(subject_of_kernel(kernel("flags"), HOST, constexprs={"BLOCK": 64}), CPU)
    with pytest.raises(SpaceError, match="nothing to search") as caught:
        found.space()
    assert "BLOCK: given" in str(caught.value)


def test_a_kernel_that_never_compiles_shows_the_place() -> None:
    source = kernel("copy", ("tl.load", "tl.lod"))
    with pytest.raises(CompilationError, match=r"no 'lod'") as caught:
        subject_of_kernel(source, HOST)
    assert "^" in str(caught.value)


def test_unknown_devices() -> None:
    with pytest.raises(JobError, match="h300"):
        device_of("h300")
    assert device_of("sm_80")[1] == "cuda:80"


def test_the_example(examples_folder: str = "examples") -> None:
    source = KernelSource.from_file(f"{examples_folder}/matmul.py", "matmul_kernel")
    found = infer_space(subject_of_kernel(source, ARCH), H200)
    assert len(found.configs) == 9
    assert all(found.bound().contains(config) for config in found.configs)
    assert InferredSpace.from_json(found.to_json()) == found
