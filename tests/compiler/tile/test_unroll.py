"""Loops that are unrolled, and those that stay: the iterations are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operation_texts import i32

from deuteron.compiler.ir import parse_function, verify
from deuteron.compiler.targets import interpreter
from deuteron.compiler.tile.passes import fold, unroll
from deuteron.compiler.tile.passes.numbers import trip_count


@pytest.mark.parametrize(
    "bounds", [(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 1), (2, 8, 5), (2, 7, 5), (5, 0, -5), (5, -1, -5)]
)
def test_short_loops_keep_their_iterations(bounds):
    """None and one are unrolled; two stay a loop. The interpreter says what each computes."""
    lower, upper, step = bounds
    text = "\n".join(
        [
            "func @f(%p: *i32) {", i32("z", 0), i32("lo", lower), i32("up", upper), i32("st", step),
            "%r = for %lo %up %st inits=[%z] {num_stages = 0, unroll = 1} : i32 body=(%i: i32, %s: i32) {",
            i32("k", 100), "%t = add %s %i : i32", "%u = add %t %k : i32", "yield values=[%u]", "}", "store %p %r", "}",
        ]
    )  # fmt: skip
    function, out = fold(parse_function(text)), np.zeros(1, np.int32)
    interpreter.run(function, (1,), [out])
    assert out[0] == sum(i + 100 for i in range(*bounds))
    assert any(op.mnemonic == "for" for op in function.walk()) == (len(range(*bounds)) > 1)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_trips_are_those_of_a_range(lower, upper, step):
    assert trip_count(lower, upper, step) == len(range(lower, upper, step))


@pytest.mark.parametrize("factor", [1, 4])
def test_a_loop_over_all_64_bits_stays_a_loop(factor):
    """``len`` of such a range overflows."""
    text = "\n".join(
        [
            "func @f(%p: *i32) {", *(f"%{name} = constant {{value = {value}, type = u64}} : u64"
            for name, value in (("lo", 0), ("up", 2**64 - 1), ("st", 1))),
            f"for %lo %up %st inits=[] {{num_stages = 0, unroll = {factor}}} body=(%i: u64) {{",
            i32("k", 100), "store %p %k", "}", "}",
        ]
    )  # fmt: skip
    function = unroll(fold(parse_function(text)))
    assert [op.mnemonic for op in function.walk()].count("for") == 1


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("lower, step", [(0, 1), (-3, 2), (5, 7)])
def test_unrolled_loops_of_any_length_do_the_same_iterations(factor, lower, step):
    """The trip count is known at run time only: groups of ``factor`` iterations, then the rest."""
    text = "\n".join(
        [
            "func @f(%p: *i32, %up: i32) {", i32("z", 0), i32("lo", lower), i32("st", step), i32("k", 31),
            f"%r = for %lo %up %st inits=[%z] {{num_stages = 0, unroll = {factor}}} : i32 body=(%i: i32, %s: i32) {{",
            "%t = mul %s %k : i32", "%u = add %t %i : i32", "yield values=[%u]", "}", "store %p %r", "}",
        ]
    )  # fmt: skip
    function = verify(unroll(parse_function(text)))
    assert [op.mnemonic for op in function.walk()].count("for") == 2
    for upper in range(lower - 2, lower + 9 * step):
        out, wanted = np.zeros(1, np.int32), 0
        for i in range(lower, upper, step):
            wanted = 31 * wanted + i
        interpreter.run(function, (1,), [out, upper])
        assert out[0] == np.int64(wanted).astype(np.int32), upper
