"""Loops of generated GPU code against Python's range: bounds, steps and signs, known and unknown."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.ir import parse_function

COUNT = """
def count(out_ptr, lower, upper, step):
    n = 0
    last = lower
    for i in range(lower, upper, {step}):
        n += 1
        last = i
    tl.store(out_ptr, n)
    tl.store(out_ptr + 1, last.to(tl.int32, bitcast=True))
"""


@pytest.mark.parametrize("bounds", [(0, 5, 1), (3, 10, 4), (5, 5, 1), (7, 2, 1), (5, -5, -3), (0, 5, -1), (9, 0, -2)])
@pytest.mark.parametrize("known", [False, True], ids=["run-time step", "constant step"])
def test_for_counts_as_range_does(from_text, simulated, bounds, known) -> None:
    text = COUNT.format(step=bounds[2] if known else "step")
    sample = from_text(text, {"out_ptr": "*i32:16", **dict.fromkeys(("lower", "upper", "step"), "i32")})
    out, steps = np.zeros(2, np.int32), range(*bounds)
    simulated(sample, (1,), [out, *bounds])
    assert out.tolist() == [len(steps), steps[-1] if len(steps) else bounds[0]]


LOOP = """
func @f(%out: *i32, %lo: T, %up: T) {
  %step = constant {value = STEP, type = T} : T
  %z = constant {value = 0, type = i32} : i32
  %one = constant {value = 1, type = i32} : i32
  %n, %last = for %lo %up %step inits=[%z, %lo] {num_stages = 0, unroll = 1} : i32, T body=(%i: T, %k: i32, %l: T) {
    %k1 = add %k %one : i32
    yield values=[%k1, %i]
  }
  %q = addptr %out %one : *i32
  %w = cast %last {to = type(i32), rounding = "rtne"} : i32
  store %out %n
  store %q %w
}
"""


@pytest.mark.parametrize(
    "type, bounds",
    [
        ("i32", (9, 0, -2)),
        ("i64", (9, -9, -5)),
        ("i32", (-5, 5, 3)),
        ("u32", (1, 3, 1)),
        ("u32", ((1 << 31) - 1, (1 << 31) + 2, 1)),
        ("u32", (5, (1 << 31) + 5, 1 << 30)),
    ],
)
def test_loops_of_tile_ir_with_a_constant_step(run_function, type, bounds) -> None:
    """Falling loops and unsigned bounds above the signed range reach the code generator as they are."""
    out, steps = np.zeros(2, np.int32), range(*bounds)
    function = parse_function(LOOP.replace("STEP", str(bounds[2])).replace("T", type))
    held = [int(np.array(b, np.int64).astype(np.int64 if type == "i64" else np.int32)) for b in bounds[:2]]
    run_function(function, (1,), [out, *held])
    assert out.tolist() == [len(steps), np.int64(steps[-1]).astype(np.int32)]


def test_while_and_branches_carry_tiles_and_scalars(from_text, simulated) -> None:
    text = """
def collatz(x_ptr, out_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    steps = tl.zeros((N,), tl.int32)
    k = n
    while k > 0:
        if k % 2 == 0:
            x = tl.where(x % 2 == 0, x // 2, 3 * x + 1)
        else:
            x = x + 1
            steps += 2
        steps += 1
        k -= 1
    tl.store(x_ptr + o, x)
    tl.store(out_ptr + o, steps)
"""
    sample = from_text(text, {"x_ptr": "*i32:16", "out_ptr": "*i32:16", "n": "i32"}, {"N": 256})
    x, out = np.arange(1, 257, dtype=np.int32), np.zeros(256, np.int32)
    wanted = x.copy()
    for k in range(5, 0, -1):
        wanted = wanted + 1 if k % 2 else np.where(wanted % 2 == 0, wanted // 2, 3 * wanted + 1)
    simulated(sample, (1,), [x, out, 5])
    np.testing.assert_array_equal(x, wanted)
    assert (out == 5 + 2 * 3).all()
