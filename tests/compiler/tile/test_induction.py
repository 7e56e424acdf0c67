"""Carried offsets as functions of the index: nothing changes but that they are no longer carried."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.frontend import KernelSource
from deuteron.compiler.ir import Function, parse_function, verify
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets.interpreter import run
from deuteron.compiler.tile.axis import analyze
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import Add, IntDiv
from deuteron.compiler.tile.memory import Store
from deuteron.compiler.tile.passes import dce, fold, licm, linearize_induction

LENGTH = 8


def looped(update: list[str], step: int, index: str = "i32", carried: str = "i32", load: bool = True) -> Function:
    """A loop that stores what it carries: ``%n`` becomes ``%next`` by the lines of ``update``."""
    block = "%t = block_load %p sizes=[%one] strides=[%one] offsets=[%zero] {shape = [1], checked = [0], "
    lines = [
        f"func @f(%p: *{carried}, %lo: {index}, %up: {index}, %n0: {carried}, %k: {carried}) {{",
        "%zero = constant {value = 0, type = i32} : i32",
        "%one = constant {value = 1, type = i32} : i32",
        f"%step = constant {{value = {step}, type = {index}}} : {index}",
        f"%r, %c = for %lo %up %step inits=[%n0, %zero] {{num_stages = 0, unroll = 1}} : {carried}, i32 "
        f"body=(%i: {index}, %n: {carried}, %count: i32) {{",
        *([block + f'padding = "zero", cache = "", eviction = ""}} : tile<1x{carried}>'] if load else []),
        *(['print values=[%t] {prefix = "", hex = False}'] if load else []),
        f"%q = addptr %p %count : *{carried}",
        "store %q %n",
        *update,
        "%following = add %count %one : i32",
        "yield values=[%next, %following]",
        "}",
        f"%end = constant {{value = {LENGTH}, type = i32}} : i32",
        f"%last = addptr %p %end : *{carried}",
        "store %last %r",
        "}",
    ]
    return verify(parse_function("\n".join(lines)))


def result(function: Function, *values: int, dtype: type = np.int32) -> list[int]:
    out = np.zeros(LENGTH + 1, dtype)
    run(function, (1,), [out, *values])
    return out.tolist()


def carried(function: Function) -> int:
    (loop,) = [op for op in function.walk() if isinstance(op, For)]
    return len(loop.inits)


UPDATES = {
    "plus": ["%next = add %n %k : i32"],
    "reversed": ["%next = add %k %n : i32"],
    "minus": ["%next = sub %n %k : i32"],
    "both": ["%x = add %n %k : i32", "%y = sub %x %n0 : i32", "%next = add %k %y : i32"],
    "constant": ["%w = constant {value = 64, type = i32} : i32", "%next = add %n %w : i32"],
    "minus constant": ["%w = constant {value = 3, type = i32} : i32", "%next = sub %n %w : i32"],
}


@pytest.mark.parametrize("name", UPDATES)
@given(lower=st.integers(-30, 30), trips=st.integers(0, LENGTH), step=st.sampled_from([1, 3, 16]), data=st.data())
def test_values_stay(name: str, lower: int, trips: int, step: int, data: st.DataObject):
    first, amount = data.draw(st.integers(-99, 99)), data.draw(st.integers(-(2**31), 2**31 - 1))
    upper = lower + trips * step - data.draw(st.integers(0, step - 1)) * (trips > 0)
    plain, made = looped(UPDATES[name], step), linearize_induction(licm(looped(UPDATES[name], step)))
    arguments = (lower, upper, first, amount)
    with np.errstate(over="ignore"):
        assert result(verify(made), *arguments) == result(plain, *arguments)


def test_a_value_that_nobody_reads_afterwards_is_not_carried():
    made = dce(linearize_induction(licm(looped(UPDATES["constant"], 64))))
    assert carried(made) == 1  # the result is stored; the count is not
    divisions = [op for op in fold(made).walk() if isinstance(op, IntDiv)]
    assert len(divisions) == 1, "the count's: the offset grows by a multiple of the step"


@pytest.mark.parametrize(
    "index, kept, dtype", [("i32", "i64", np.int64), ("i64", "i32", np.int32), ("u32", "i64", np.int64)]
)
def test_other_widths(index: str, kept: str, dtype: type):
    update = [f"%next = add %n %k : {kept}"]
    made = verify(linearize_induction(looped(update, 3, index, kept)))
    assert result(made, 5, 5 + 3 * 4, 7, 100, dtype=dtype)[:5] == [7, 107, 207, 307, 0]


def test_a_difference_of_distant_bounds_does_not_wrap():
    update = ["%next = add %n %k : i64"]
    made = linearize_induction(looped(update, 2**30, "i32", "i64"))
    lower, upper = -(2**31), 2**31 - 1
    assert result(made, lower, upper, 0, 1, dtype=np.int64)[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "update", [["%next = mul %n %k : i32"], ["%next = add %n %count : i32"], ["%next = sub %k %n : i32"]]
)
def test_what_is_not_linear_stays(update: list[str]):
    made = linearize_induction(looped(update, 1))
    (loop,) = [op for op in made.walk() if isinstance(op, For)]
    value = loop.body.args[1]
    assert any(value in op.operands for op in loop.body.ops)


def test_what_an_offset_is_a_multiple_of_stays_known():
    made = licm(looped(UPDATES["constant"], 64))
    first = next(op for op in made.walk() if isinstance(op, For)).inits[0]
    facts = analyze(linearize_induction(made))
    stored = next(op.value for op in made.walk() if isinstance(op, Store))
    assert isinstance(stored.op, Add) and first in stored.op.operands
    (grown,) = [v for v in stored.op.operands if v is not first]
    assert facts[grown].divisibility == (64,)


def test_narrow_indices_may_be_far_apart():
    made = linearize_induction(looped(UPDATES["plus"], 50, index="i8"))
    assert result(made, -120, 120, 3, 10)[:6] == [3, 13, 23, 33, 43, 0]


def test_loops_without_blocks_stay():
    function = looped(UPDATES["plus"], 1, load=False)
    before = len(list(function.walk()))
    assert len(list(linearize_induction(function).walk())) == before


MATMULS = """
import deuteron
import deuteron.language as tl

@deuteron.jit
def pointers(a, b, c, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    pa = tl.make_block_ptr(a, (M, K), (sam, 1), (m, 0), (BM, BK), (1, 0))
    pb = tl.make_block_ptr(b, (K, N), (sbk, 1), (0, n), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(pa, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(pb, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, y, acc)
        pa = tl.advance(pa, (0, BK))
        pb = tl.advance(pb, (BK, 0))
    pc = tl.make_block_ptr(c, (M, N), (scm, 1), (m, n), (BM, BN), (1, 0))
    tl.store(pc, acc.to(tl.bfloat16), boundary_check=(0, 1))

@deuteron.jit
def descriptors(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    at = 0
    for k in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(a.load([m, at]), b.load([at, n]), acc)
        at += BK
    c.store([m, n], acc.to(tl.bfloat16))
"""


def gpu_code(kernel: str, target: str) -> str:
    types: dict[str, str] = {"K": "i32"}
    if kernel == "pointers":
        types |= {"M": "i32", "N": "i32", "sam": "i32:16", "sbk": "i32:16", "scm": "i32:16"}
        types |= dict.fromkeys("abc", "*bf16:16")
    else:
        types |= {"a": "tensordesc<bf16[128, 64]>", "b": "tensordesc<bf16[64, 128]>", "c": "tensordesc<bf16[128, 128]>"}
    sizes = {"BM": 128, "BN": 128, "BK": 64}
    variant = make_variant(KernelSource.from_text(MATMULS, kernel), types, sizes, target, {"num_warps": 4})
    return str(build(variant, "gpu").artifacts["gpu"])


@pytest.mark.parametrize("kernel", ["pointers", "descriptors"])
def test_advanced_blocks_are_brought_ahead(kernel: str):
    text = gpu_code(kernel, "cuda:90a")
    assert "gpu.roles" in text and text.count("gpu.fetch") == 2
    assert gpu_code(kernel, "cuda:80").count("gpu.fetch") == 4, "two before the loop, two in it"
