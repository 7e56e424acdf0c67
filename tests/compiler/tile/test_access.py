"""Accesses that are boxes of arrays: what is proven, under which guards, and that nothing changes but the form."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.errors import MemoryAccessError
from deuteron.compiler.frontend import KernelSource
from deuteron.compiler.ir import Function, parse_function, print_function, verify
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.runtime.variant.pipeline import Build, make_tile
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets.interpreter import run
from deuteron.compiler.tile.blocks import BlockLoad, BlockStore
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import Add, AddPtr, Constant, Sub
from deuteron.compiler.tile.memory import Load, Store
from deuteron.compiler.tile.passes import dce, expand_blocks, structure_accesses

Guards = tuple[Guard, ...]
#: Programs ordered in groups are divided by columns of tiles, of which there are fewer than none where N is negative.
COLUMNS = Guard("N", "least", 0)

#: Kernels in the spellings that authors use.
KERNELS = (Path(__file__).parent / "access_kernels.py").read_text()


@cache
def source(kernel: str) -> KernelSource:
    return KernelSource.from_text(KERNELS, kernel)


@dataclass
class Launch:
    """A kernel with arguments by name. Arrays are as long as the kernel needs and no longer."""

    kernel: str
    grid: tuple[int, ...]
    arguments: dict[str, np.ndarray | int]
    sizes: dict[str, int | bool] = field(default_factory=dict)

    def function(self) -> Function:
        signature = {name: _type(value) for name, value in self.arguments.items()}
        variant = make_variant(source(self.kernel), signature, self.sizes, "cpu", {})
        return make_tile(Build(variant))

    def structured(self) -> tuple[Function, Guards]:
        """The function with the boxes that there are under guards that the arguments keep."""
        denied: set[Guard] = set()
        while True:
            function = self.function()
            guards = structure_accesses(function, lambda op: True, frozenset(denied))
            assert denied.isdisjoint(guards)
            broken = {guard for guard in guards if not guard.holds(self.arguments[guard.parameter])}
            if not broken:
                return verify(dce(function)), guards
            denied |= broken

    def run(self, function: Function) -> dict[str, np.ndarray]:
        held = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in self.arguments.items()}
        run(function, self.grid, [held[p.name] for p in function.parameters])
        return {name: value for name, value in held.items() if isinstance(value, np.ndarray)}


def _type(value: np.ndarray | int) -> str:
    if isinstance(value, np.ndarray):
        return {"float32": "*f32", "float16": "*f16", "int32": "*i32"}[value.dtype.name]
    return "i32:1" if value == 1 else "i32:16" if value % 16 == 0 else "i32"


def count(function: Function) -> tuple[int, int]:
    """Accesses of tiles: boxes, and those that are still pointers."""
    ops = list(function.walk())
    boxes = sum(isinstance(op, BlockLoad | BlockStore) for op in ops)
    return boxes, sum(isinstance(op, Load | Store) and op.pointer.type.rank > 0 for op in ops)


def assert_same(launch: Launch, *, gathers: int = 0) -> Guards:
    """All accesses but ``gathers`` become boxes; memory after the launch is the same, bit for bit, expanded too."""
    expected = launch.run(launch.function())
    function, guards = launch.structured()
    boxes, left = count(function)
    assert (boxes > 0, left) == (True, gathers)
    for changed in (function, verify(expand_blocks(launch.structured()[0]))):
        for name, got in launch.run(changed).items():
            np.testing.assert_array_equal(got, expected[name], err_msg=name)
    return guards


numbers = st.integers(1, 40)
few = settings(max_examples=5)  # the interpreter runs each of them three times


@st.composite
def matrices(draw, name: str, rows: int, columns: int) -> dict[str, np.ndarray | int]:
    """A matrix of either order with gaps, as ``NAME``, ``sNAME0`` and ``sNAME1``."""
    gap = draw(st.sampled_from([0, 0, 3, 16]))
    outer, inner = (columns + gap, 1) if draw(st.booleans()) else (1, rows + gap)
    if draw(st.integers(0, 4)) == 0:
        outer, inner = 2 * outer, 2 * inner
    length = (rows - 1) * outer + (columns - 1) * inner + 1
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(-8, 9, length).astype(np.float32)
    return {name: values, f"s{name}0": outer, f"s{name}1": inner}


@st.composite
def products(draw, multiple: int = 1) -> tuple[dict[str, np.ndarray | int], tuple[int, int]]:
    m, n, k = (draw(numbers) for _ in range(3))
    m, n = (-(-x // multiple) * multiple for x in (m, n))
    block = max(16, multiple)
    made = draw(matrices("a", m, k)) | draw(matrices("b", k, n)) | draw(matrices("c", m, n))
    return made | {"M": m, "N": n, "K": k}, (-(-m // block), -(-n // block))


BLOCKS = {"BM": 16, "BN": 16, "BK": 8}
WIDE = {"BM": 32, "BN": 32, "BK": 8, "GROUP": 2}
FORMS = range(6)


@pytest.mark.parametrize("form", FORMS)
@few
@given(product=products())
def test_products(form, product):
    """Indices from the loop's, pointers and offsets that are carried, bounds on either side of the comparison."""
    arguments, grid = product
    assert assert_same(Launch("matmul", grid, arguments, BLOCKS | {"FORM": form})) == ()


@few
@given(product=products(32))
def test_wrapped_products(product):
    """``% M`` is the identity under guards, which these arguments keep; programs are ordered in groups."""
    arguments, (x, y) = product
    guards = assert_same(Launch("grouped_matmul", (x * y,), arguments, WIDE))
    assert set(guards) == {Guard("M", "multiple", 32), COLUMNS, Guard("N", "multiple", 32)}


@few
@given(product=products())
def test_wrapped_products_of_any_size(product):
    """Without the guards the wrapped operands stay gathers, and the result is a box all the same."""
    arguments, (x, y) = product
    ragged = sum(arguments[size] % 16 != 0 and arguments[size] != 1 for size in "MN")
    assert_same(Launch("grouped_matmul", (x * y,), arguments, BLOCKS | {"GROUP": 2}), gathers=ragged)


@few
@given(product=products())
def test_pointers_after_a_loop(product):
    """A loop over whole blocks without masks, then the rest of K through the pointers that the loop leaves."""
    arguments, grid = product
    arguments["K"] = max(arguments["K"], 1)
    assert_same(Launch("peeled", grid, arguments, BLOCKS))


@few
@given(product=products(), copies=st.integers(1, 3), gap=st.integers(0, 40))
def test_batches_are_leading_dimensions(product, copies, gap):
    arguments, grid = product
    for name in "abc":
        stride = len(arguments[name]) + gap
        arguments |= {
            name: np.resize(arguments[name], (copies - 1) * stride + len(arguments[name])),
            f"z{name}": stride,
        }
    launch = Launch("batched", (*grid, copies), arguments, BLOCKS)
    assert_same(launch)
    function, _ = launch.structured()
    parameters = {p.value for p in function.parameters}
    for op in function.walk():
        if isinstance(op, BlockLoad | BlockStore):
            assert op.base in parameters
            assert len(op.sizes) == 3
            assert op.checked == (0, 1, 1)


@few
@given(heads=st.integers(1, 3), blocks=st.integers(1, 4), gap=st.sampled_from([0, 8]), causal=st.booleans())
def test_attention(heads, blocks, gap, causal):
    n, d = 16 * blocks, 8
    stride = d + gap
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-3, 4, heads * n * stride).astype(np.float32) for _ in range(3))
    arguments = {"q": q, "k": k, "v": v, "o": np.zeros_like(q), "stride_h": n * stride, "stride_n": stride, "N": n}
    assert (
        assert_same(Launch("attention", (blocks, heads), arguments, {"BM": 16, "BN": 8, "D": d, "CAUSAL": causal}))
        == ()
    )


@few
@given(count=st.integers(1, 5), columns=numbers, gap=st.integers(0, 9), way=st.sampled_from([0, 1, 2]))
def test_rows(count, columns, gap, way):
    stride = columns + gap
    x = np.arange((count - 1) * stride + columns, dtype=np.float32)
    arguments = {"x": x, "y": np.zeros_like(x), "stride": stride, "N": columns}
    assert_same(Launch("rows", (count,), arguments, {"B": 64 if way == 2 else 128, "WAY": way}))


@pytest.mark.parametrize("form", range(8))
@few
@given(m=numbers, n=numbers, data=st.data())
def test_copies(form, m, n, data):
    """Every spelling of the bounds, with bounds that are not the array's own."""
    arguments = data.draw(matrices("x", m, n)) | data.draw(matrices("y", m, n)) | {"M": m, "N": n}
    arguments["y"] = np.full_like(arguments["y"], -1)
    assert_same(Launch("copy", (-(-m // 16), -(-n // 32)), arguments, {"BM": 16, "BN": 32, "FORM": form}))


@pytest.mark.parametrize("way", [0, 1])
@few
@given(n=st.integers(2, 40))
def test_blocks_from_the_end(way, n):
    """The last block first: its box begins there and ends where the array does."""
    x = np.arange(n, dtype=np.float32)
    launch = Launch("from_the_end", (-(-n // 16),), {"x": x, "y": np.zeros_like(x), "N": n}, {"B": 16, "WAY": way})
    assert assert_same(launch) == ()
    function, _ = launch.structured()
    parameters = {p.value for p in function.parameters}
    assert all(op.sizes[-1] in parameters for op in function.walk() if isinstance(op, BlockLoad | BlockStore))


@few
@given(n=numbers, pad=st.integers(0, 5))
def test_lower_bounds(n, pad):
    """``0 <= i`` in a mask makes indices that begin below zero provable."""
    x = np.arange(n, dtype=np.float32)
    arguments = {"x": x, "y": np.zeros(-(-n // 16) * 16, np.float32), "N": n, "PAD": pad}
    assert_same(Launch("halo", (-(-n // 16),), arguments, {"B": 16}))


@few
@given(n=numbers, shift=st.integers(-9, 9))
def test_what_may_be_negative_needs_a_guard(n, shift):
    """``i + SHIFT < N``: under ``SHIFT >= 0`` the size may be N, without it the box begins where it is sure to."""
    x = np.zeros(n + 64, np.float32)
    launch = Launch("shifted", (3,), {"x": x, "N": n, "SHIFT": shift}, {"B": 16})
    assert_same(launch)


@few
@given(data=st.data())
def test_bounds_from_memory(data):
    """Sizes that only the program knows."""
    starts = np.cumsum([0, *(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)))]).astype(np.int32)
    x = np.arange(starts[-1] * 8, dtype=np.float32)
    arguments = {"x": x, "y": np.zeros_like(x), "starts": starts}
    assert_same(Launch("cut_sequences", (len(starts) - 1, 3), arguments, {"B": 16, "D": 8}))


# What the operations say -------------------------------------------------------------------------------------


def example(**changes: int) -> Launch:
    arguments: dict[str, np.ndarray | int] = {name: np.zeros(4096, np.float32) for name in "abc"}
    arguments |= dict.fromkeys(("sa0", "sb0", "sc0"), 64) | dict.fromkeys(("sa1", "sb1", "sc1"), 1)
    return Launch("grouped_matmul", (4,), arguments | {"M": 64, "N": 64, "K": 48} | changes, WIDE)


def test_a_launcher_can_compute_sizes_and_strides():
    function, guards = example().structured()
    assert guards == (Guard("M", "multiple", 32), COLUMNS, Guard("N", "multiple", 32))
    names = {p.value: p.name for p in function.parameters}
    said = [
        [names.get(v, v.op.value if isinstance(v.op, Constant) else "?") for v in (op.base, *op.sizes, *op.strides)]
        for op in function.walk()
        if isinstance(op, BlockLoad | BlockStore)
    ]
    assert said == [["a", 0, "K", "sa0", 1], ["b", "K", 0, "sb0", 1], ["c", "M", "N", "sc0", 1]]


def test_carried_pointers_are_gone():
    function, _ = example().structured()
    (loop,) = (op for op in function.walk() if isinstance(op, For))
    assert [v.type.rank for v in loop.results] == [2]
    assert not any(isinstance(op, AddPtr) for op in function.walk())


def test_denied_guards_are_not_asked_for():
    function = example().function()
    denied = frozenset({Guard("M", "multiple", 32)})
    assert set(structure_accesses(function, lambda op: True, denied)) == {COLUMNS, Guard("N", "multiple", 32)}
    assert count(dce(function)) == (2, 1)
    weaker = frozenset({Guard("M", "multiple", 8), Guard("N", "multiple", 64)})
    guards = structure_accesses(example().function(), lambda op: True, weaker)
    assert set(guards) == {COLUMNS, Guard("N", "multiple", 32)}


def test_only_wanted_accesses_change():
    function = example().function()
    assert structure_accesses(function, lambda op: isinstance(op, Store)) == (COLUMNS,)
    assert count(function) == (1, 2)
    before = example().function()
    assert structure_accesses(before, lambda op: False) == ()
    assert count(before) == (0, 3)


def test_a_broken_guard_is_noticed():
    """The guards are needed: with M that is no multiple, the function that relies on it computes something else."""
    rng = np.random.default_rng(0)
    launch = example(M=56)
    launch.arguments["a"] = rng.standard_normal(56 * 64).astype(np.float32)[: 55 * 64 + 48]
    trusting = launch.function()
    structure_accesses(trusting, lambda op: True)
    launch.run(launch.function())
    with pytest.raises(MemoryAccessError, match="block_load"):
        launch.run(trusting)


@pytest.mark.parametrize("mutation", ["size", "offset", "stride", "checked"])
def test_a_wrong_box_is_noticed(mutation):
    """The comparisons above can fail: one number changed in one operation shows."""
    arguments: dict[str, np.ndarray | int] = {
        "x": np.arange(1, 4001, dtype=np.float32),
        "y": np.zeros(4000, np.float32),
    }
    arguments |= {"sx0": 60, "sx1": 1, "sy0": 60, "sy1": 1, "M": 30, "N": 39}
    launch = Launch("copy", (2, 2), arguments, {"BM": 16, "BN": 32, "FORM": 0})
    function, _ = launch.structured()
    (load,) = (op for op in function.walk() if isinstance(op, BlockLoad))
    if mutation == "checked":
        load.checked = (1, 0)
        (store,) = (op for op in function.walk() if isinstance(op, BlockStore))
        store.checked = (1, 0)
    else:
        position = function.body.ops.index(load)
        one = Constant(1, load.offsets[1].type)
        names = {"size": "sizes", "offset": "offsets", "stride": "strides"}[mutation]
        held = list(getattr(load, names))
        changed = (Sub if mutation == "size" else Add)(held[0], one.result)
        function.body.ops[position:position] = [one, changed]
        setattr(load, names, (changed.result, *held[1:]))
    expected = launch.run(launch.function())["y"]
    assert not np.array_equal(launch.run(verify(function))["y"], expected)


# Whole kernels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("ones", [(), ("stride_ak", "stride_bn", "stride_cn"), ("stride_am", "stride_bk", "stride_cn")])
def test_the_example_of_a_matmul_is_all_boxes(element, ones):
    names = ["M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"]
    signature = {f"{matrix}_ptr": f"*{element}:16" for matrix in "abc"}
    signature |= {name: "i32:1" if name in ones else "i32:16" for name in names}
    sizes = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "ACTIVATION": ""}
    text = (Path(__file__).parents[3] / "examples" / "matmul.py").read_text()
    variant = make_variant(KernelSource.from_text(text, "matmul_kernel"), signature, sizes, "cuda:90a", {})
    function = make_tile(Build(variant))
    guards = structure_accesses(function, lambda op: True)
    assert guards == (COLUMNS,)
    assert count(verify(dce(function))) == (3, 0)


@settings(max_examples=40)
@given(data=st.data())
def test_random_functions_keep_their_meaning(data, functions):
    function, arguments = data.draw(functions())
    expected = interpreted(function, arguments)
    values = dict(zip((p.name for p in function.parameters), arguments, strict=True))
    broken: frozenset[Guard] = frozenset()
    while True:
        changed = parse_function(print_function(function))
        guards = structure_accesses(changed, lambda op: True, broken)
        if all(guard.holds(values[guard.parameter]) for guard in guards):
            break
        broken |= {guard for guard in guards if not guard.holds(values[guard.parameter])}
    for got, wanted in zip(interpreted(verify(changed), arguments), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for got, wanted in zip(interpreted(verify(expand_blocks(changed)), arguments), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def interpreted(function: Function, arguments: list[np.ndarray | int]) -> list[np.ndarray]:
    """The arrays afterwards, floats as f64. What masked loads leave undefined is 0, as in a box."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    run(function, (2,), copies)
    arrays = [a for a in copies if isinstance(a, np.ndarray)]
    return [a if a.dtype.kind in "iub" else a.astype(np.float64) for a in arrays]
