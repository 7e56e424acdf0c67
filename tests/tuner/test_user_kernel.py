from __future__ import annotations

import json
from pathlib import Path

import pytest

from deuteron.compiler import KernelSource
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.errors import ExpressionError, SchemaError, WorkloadError
from deuteron.tuner.workloads import WorkloadSpec
from deuteron.tuner.workloads.inferred import infer_workload

KERNEL = """
import deuteron as triton
import deuteron.language as tl

raise SystemExit("this file must never be executed")


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * factor, mask=offsets < n)
"""

DESCRIPTION = {
    "dims": ["n"],
    "tensors": [
        {"name": "x_ptr", "shape": ["n"]},
        {"name": "y_ptr", "shape": ["n"], "role": "output"},
    ],
    "scalars": {"n": "n", "factor": "2.5"},
    "grid": ["cdiv(n, BLOCK)"],
    "bytes": "2 * n * element_bytes",
    "space": {"parameters": {"BLOCK": [64, 128, 256]}},
    "default": {"BLOCK": 128},
}


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write_file(text: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write_file


def test_builtin_by_name() -> None:
    assert resolve_workload("matmul").name == "matmul"


def test_literal_in_the_file(write) -> None:  # type: ignore[no-untyped-def]
    file = write(f"{KERNEL}\nworkload = {DESCRIPTION!r}\n")
    spec = resolve_workload(f"{file}:scale")
    assert (spec.name, spec.kernel.name, spec.reference) == ("scale", "scale", "interpreter")
    assert spec.kernel.filename == file and "def scale" in spec.kernel.source
    problem = Problem(spec, {"n": 1000}, "f32")
    variant = problem.variant({"BLOCK": 64})
    assert variant.signature == {
        "x_ptr": "*f32:16",
        "y_ptr": "*f32:16",
        "n": "i32",
        "factor": "f32",
    }
    assert (variant.grid, variant.constexprs) == ((16,), {"BLOCK": 64})
    assert spec.dims_from_arguments == {"n": "n"}


def test_several_kernels_in_one_file(write) -> None:  # type: ignore[no-untyped-def]
    file = write(f"{KERNEL}\nworkloads = {{'scale': {DESCRIPTION!r}}}\n")
    assert resolve_workload(f"{file}:scale").dims == ("n",)
    with pytest.raises(WorkloadError, match="does not describe how other is launched"):
        resolve_workload(f"{file}:other")


def test_json_beside_the_file(write) -> None:  # type: ignore[no-untyped-def]
    file, spec = write(KERNEL), write(json.dumps(DESCRIPTION), "spec.json")
    assert resolve_workload(f"{file}:scale", spec).default_for("cpu") == {"BLOCK": 128}


def test_description_is_a_literal_not_code(write) -> None:  # type: ignore[no-untyped-def]
    file = write(f"{KERNEL}\nworkload = dict(dims=['n'])\n")
    with pytest.raises(WorkloadError, match=r"mine.py:\d+: a workload is a literal"):
        resolve_workload(f"{file}:scale")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": None}, "workload: the field 'dims' is missing"),
        ({"dims": "n"}, "workload.dims: expected a list, found the text 'n'"),
        ({"grid": ["cdiv(n, BLOK)"]}, "the grid .* uses the unknown name 'BLOK'"),
        ({"grid": []}, "one to three axes"),
        ({"scalars": {"n": "n +"}}, "not an expression"),
        ({"tensors": [{"name": "x_ptr", "shape": ["n"], "role": "outptu"}]}, "role 'outptu'"),
        ({"tensors": [{"name": "x_ptr", "shape": ["n"]}]}, "no tensor has the role output"),
        ({"tensors": [{"name": "n", "shape": ["n"], "role": "output"}]}, "'n' is described twice"),
        ({"dtypes": ["f31"]}, "unknown dtype 'f31'"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"dims_from_arguments": {"n": "x_ptr[0]"}}, "does not say where a dim comes from"),
        ({"space": {"parameters": {"BLOCK": [64]}, "constraints": ["BLOCK < m"]}}, "name 'm'"),
        ({"kernel": "other"}, "remove the field 'kernel'"),
        ({"shapes": [{"m": 4}]}, "lacks 'n'"),
    ],
)
def test_wrong_descriptions_name_the_place(write, change, message) -> None:  # type: ignore[no-untyped-def]
    file = write(f"{KERNEL}\nworkload = { ({**DESCRIPTION, **change})!r}\n")
    with pytest.raises((WorkloadError, SchemaError, ExpressionError), match=message):
        resolve_workload(f"{file}:scale")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scalars": {"n": "n"}}, "does not describe the argument 'factor'"),
        ({"scalars": {"n": "n", "factor": "1.0", "m": "n"}}, "has no run-time argument 'm'"),
        (
            {"space": {"parameters": {"WARPS": [1]}}, "grid": ["n"]},
            "nothing gives the constexpr 'BLOCK'",
        ),
        (
            {"space": {"parameters": {"BLOCK": [64], "WHAT": [1]}}},
            "'WHAT' is no constexpr of scale, no schedule option",
        ),
        ({"constexprs": {"BLOCK": 64}}, "'BLOCK' of scale is a parameter of the space and has a value in constexprs"),
    ],
)
def test_descriptions_that_contradict_the_kernel(write, change, message) -> None:  # type: ignore[no-untyped-def]
    file = write(f"{KERNEL}\nworkload = { ({**DESCRIPTION, 'default': {}, **change})!r}\n")
    problem = Problem(resolve_workload(f"{file}:scale"), {"n": 64}, "f32")
    with pytest.raises(WorkloadError, match=message):
        problem.variant(next(problem.spec.space_for("cpu").configurations()))


def test_unknown_names(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WorkloadError, match="neither a built-in workload nor FILE.py:KERNEL"):
        resolve_workload("softmx")
    with pytest.raises(WorkloadError, match="cannot read"):
        resolve_workload(f"{tmp_path}/absent.py:k")
    file = write("def broken(:\n")
    with pytest.raises(WorkloadError, match="mine.py:1: not valid Python"):
        resolve_workload(f"{file}:broken")


def test_kernels_with_star_arguments_are_refused(write) -> None:  # type: ignore[no-untyped-def]
    text = KERNEL.replace("factor, BLOCK", "*factor, BLOCK")
    spec = resolve_workload(f"{write(f'{text}{chr(10)}workload = {DESCRIPTION!r}{chr(10)}')}:scale")
    with pytest.raises(WorkloadError, match=r"scale takes \*factor, which a workload cannot describe"):
        Problem(spec, {"n": 1000}, "f32").variant({"BLOCK": 64})
    with pytest.raises(WorkloadError, match=r"scale takes \*factor") as caught:
        infer_workload(KernelSource.from_text(text, "scale"), dims=("n",))
    assert "named parameter" in str(caught.value.hint)


STATISTICS = """
import triton, triton.language as tl
@triton.jit
def row_sums(x, order, y, sums, M, N, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    values = tl.load(x + row * N + i, mask=i < N, other=0.0) * tl.load(order + i, mask=i < N, other=0)
    tl.store(y + row * N + i, values, mask=i < N)
    tl.store(sums + row, tl.sum(values.to(tl.float32)))
"""


def statistics(**tensors: tuple[str, ...]) -> WorkloadSpec:
    given = {"x": ("M", "N"), "order": ("N:i8",), "y": ("M", "N"), "sums": ("M:output:f32",), **tensors}
    source = KernelSource.from_text(STATISTICS, "row_sums")
    return infer_workload(source, dims=("M", "N"), tensors=given, grid=["M"])


@pytest.mark.parametrize("mark", ["M:output:f32", "M:f32:output", "M:f32"])
def test_a_tensor_may_have_a_dtype_of_its_own(mark: str) -> None:
    spec = statistics(sums=(mark,))
    made = {t.name: (t.shape, t.role, t.dtype, t.fill) for t in spec.tensors}
    assert made["sums"] == (("M",), "output", "f32", "normal")
    assert made["order"] == (("N",), "input", "i8", "randint")
    problem = Problem(spec, {"M": 3, "N": 50}, "bf16")
    assert problem.variant({"B": 64}).signature["sums"] == "*f32:16"
    assert problem.bytes == 2 * 3 * 50 * 2 + 50 * 1 + 3 * 4


PRODUCT = """
import triton, triton.language as tl
@triton.jit
def product(a, b, c, K, BLOCK: tl.constexpr):
    i, acc = tl.arange(0, BLOCK), tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        x = tl.load(a + i[:, None] * K + k + i[None, :])
        acc = tl.dot(x, tl.load(b + (k + i[:, None]) * BLOCK + i[None, :]), acc)
    tl.store(c + i[:, None] * BLOCK + i[None, :], acc)
"""


def test_products_are_searched_by_their_stages_too() -> None:
    source = KernelSource.from_text(PRODUCT, "product")
    tensors = dict.fromkeys("abc", ("K",))
    spec = infer_workload(source, dims=("K",), tensors=tensors, grid=["1"])
    found = {p.name: (p.choices, p.default) for p in spec.space_for("cuda").parameters}
    assert found.keys() == {"BLOCK", "num_warps", "num_stages"}
    assert found["num_stages"] == ((2, 3, 4, 5), 3) and found["BLOCK"][0] == (16, 32, 64, 128)
    assert {p.name for p in spec.space_for("cpu").parameters} == {"BLOCK"}
    assert "num_stages" not in {p.name for p in statistics().space_for("cuda").parameters}
    asked = infer_workload(source, dims=("K",), tensors=tensors, grid=["1"], choices={"num_stages": [2, 6]})
    assert next(p for p in asked.space_for("cuda").parameters if p.name == "num_stages").choices == (2, 6)


@pytest.mark.parametrize(("mark", "wrong"), [("M:f32:f16", "f16"), ("M:output:input", "input"), ("M:f33", "f33")])
def test_other_marks_behind_a_shape_are_refused(mark: str, wrong: str) -> None:
    with pytest.raises(WorkloadError, match=rf"--tensor sums: '{wrong}' is neither a role nor a dtype"):
        statistics(sums=(mark,))
