"""Stores, atomics and boxes leave what is masked off as it was, whatever is known of the mask and however wide the
elements were before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target, cpu, interpreter, nvptx
from deuteron.compiler.tile.passes import expand_blocks, optimize
from simulator import simulate

INTEGERS = {f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}") for sign in "iu" for bits in (8, 16, 32, 64)}
DTYPES = INTEGERS | {"f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8")}
SPELLED = {name: f"tl.{kind.name}" for name, kind in DTYPES.items()}
POISON = 80

#: Masks and values, as a kernel and NumPy write them; ``n`` and ``W`` are numbers.
MASKS = ("column < n", "row < n", "column == n", "column >= W - n", "(row < n) & (column < n)", "row + column < n")
MASKS += ("(column & 15) == n", "(column & 31) == n")
VALUES = ("v", "v + v", "v * v", "xp.maximum(xp.minimum(v, 90), 5)")
#: How the value ``w`` is written at ``at`` from ``p`` on.
ACCESSES = {
    "store": "tl.store(p + at, w, mask=mask)",
    "every other": "tl.store(p + 2 * at, w, mask=mask)",
    "exchange": "tl.atomic_xchg(p + at, w, mask=mask)",
    "box": "tl.store(tl.make_block_ptr(p, (R, n), (S, 1), (0, 0), (R, W), (1, 0)), w, boundary_check=(0, 1))",
}


@dataclass(frozen=True)
class Case:
    """A tile of ``rows`` x ``columns`` elements, read as ``source``, written as ``to`` under a mask with the number
    ``bound``, which is known when the kernel is compiled (``known``) or not."""

    source: str
    to: str
    rows: int
    columns: int
    bound: int
    known: bool = True
    mask: str = MASKS[0]
    value: str = VALUES[0]
    access: str = "store"
    masked_load: bool = False

    @property
    def text(self) -> str:
        """The kernel."""
        loaded = "tl.load(x + at, mask=mask, other=7)" if self.masked_load else "tl.load(x + at)"
        return f"""
import triton
import triton.language as tl

@triton.jit
def kernel(x, p, n, R: tl.constexpr, W: tl.constexpr, S: tl.constexpr):
    row, column = tl.arange(0, R)[:, None], tl.arange(0, W)[None, :]
    at = row * S + column
    mask = {self.mask}
    v = {loaded}
    w = ({self.value.replace("xp.", "tl.")}).to({SPELLED[self.to]})
    {ACCESSES[self.access]}
"""

    def arrays(self) -> list[np.ndarray]:
        """The input, and what is written to: the tile begins behind one row."""
        size = (self.columns + 3) * (self.rows + 2)
        source = np.random.default_rng(size).integers(1, 100, size).astype(DTYPES[self.source])
        return [source, np.full(2 * size, POISON, DTYPES[self.to])]

    def expected(self) -> np.ndarray:
        """What is written to, afterwards, by NumPy."""
        source, out = self.arrays()
        stride = self.columns + 3
        row, column = np.arange(self.rows)[:, None], np.arange(self.columns)[None, :]
        names = {"row": row, "column": column, "n": self.bound, "W": self.columns, "xp": np}
        at = row * stride + column
        chosen = "column < n" if self.access == "box" else self.mask
        mask = np.broadcast_to(eval(chosen, names), at.shape)
        v = source[at]
        if self.masked_load:
            v = np.where(np.broadcast_to(eval(self.mask, names), at.shape), v, v.dtype.type(7))
        written = eval(self.value, names | {"v": v}).astype(out.dtype)
        out[stride + at[mask] * (2 if self.access == "every other" else 1)] = written[mask]
        return out

    def run(self, target: str) -> np.ndarray:
        """The same on a target."""
        source, out = self.arrays()
        stride = self.columns + 3
        types = {"x": f"*{self.source}", "p": f"*{self.to}"} | ({} if self.known else {"n": "i32"})
        constants = {"R": self.rows, "W": self.columns, "S": stride} | ({"n": self.bound} if self.known else {})
        function = lower(KernelSource.from_text(self.text, "kernel", "<masked>"), types, constants)
        arguments = [source, out[stride:], *([] if self.known else [self.bound])]
        if target == "interpreter":
            interpreter.run(function, (1,), arguments)
        elif target == "cpu":
            made = optimize(function)
            code = cpu.lower_to_llvm(expand_blocks(made), Schedule())
            passed = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
            scalars = [parameter.value.type for parameter in made.parameters]
            cpu.load(cpu.emit_object(code), code.name).launch((1, 1, 1), passed, scalars)
        else:
            where, schedule = Target.parse("cuda:90a"), Schedule(num_warps=1)
            code = nvptx.lower_to_llvm(lower_to_gpu(optimize(function), where, schedule), where, schedule)
            simulate(code.llvm, (1,), arguments, code.num_warps, code.shared_bytes)
        return out


@st.composite
def cases(draw: st.DrawFn) -> Case:
    access = draw(st.sampled_from([*ACCESSES, "store", "store"]))
    floats = draw(st.booleans()) and access != "exchange"
    sources = list(DTYPES) if floats else list(INTEGERS)
    source = draw(st.sampled_from(sources))
    if access == "exchange":
        to = draw(st.sampled_from(["i32", "u32", "i64", "u64"]))
    else:
        to = draw(st.sampled_from([name for name in sources if source[0] != "f" or name[0] == "f"]))
    rows, columns = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
    bounds = {0, 1, 2, columns - 1, columns, columns // 2 + 1, rows - 1, rows}
    bound = draw(st.sampled_from(sorted(bounds)) | st.integers(0, columns))
    return Case(
        source, to, rows, columns, bound, draw(st.booleans()), draw(st.sampled_from(MASKS)),
        draw(st.sampled_from(VALUES)), access, draw(st.booleans()),
    )  # fmt: skip


@settings(max_examples=150)
@example(Case("i32", "u8", 8, 8, 1))
@example(Case("i16", "u8", 8, 16, 1))
@example(Case("i64", "i32", 2, 4, 2, mask="column == n"))
@example(Case("u8", "u8", 8, 16, 1, value="v * v"))
@example(Case("i32", "u8", 8, 16, 1, value=VALUES[3]))
@given(cases())
def test_nothing_that_is_masked_off_is_written(case):
    for target in ("interpreter", "cpu"):
        np.testing.assert_array_equal(case.run(target), case.expected(), target)


@settings(max_examples=80)
@example(Case("i32", "u8", 8, 8, 1))
@given(cases())
def test_nor_on_a_gpu(case):
    np.testing.assert_array_equal(case.run("simulated"), case.expected())


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_one_lane_of_any_width_is_stored_alone(source, to):
    for columns, lane in ((4, 0), (8, 3), (16, 15)):
        case = Case(source, to, 2, columns, lane, mask="column == n")
        np.testing.assert_array_equal(case.run("cpu"), case.expected())
