"""Elements of a tile that share a divisor: what they have in common is computed once, and quotients stay the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from target_runs import RUNNERS, ptx_program

from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target, nvptx

SIZE = 1024
#: About 0, the limits of normal numbers, and those between which ``div.full.f32`` does not scale.
EDGES = np.array(
    [
        0.0,
        1e-45,
        2.0**-127,
        2.0**-126,
        1e-30,
        1 / 3,
        1.0,
        7.0,
        1e30,
        2.0**125,
        2.0**126,
        1.7e38,
        3.4e38,
        np.inf,
        np.nan,
    ],
    np.float32,
)


@pytest.fixture
def sides(reference):
    """Dividends, all edges among them, and the divisors."""
    divisors = np.concatenate([EDGES, -EDGES])
    x = reference.values("f32", SIZE, np.random.default_rng(3))
    x[: len(divisors)] = divisors
    return x, np.resize(divisors, SIZE), range(len(divisors))


def test_quotients_are_within_the_bound(reference, run_on_target, quotient_steps, sides):
    x, y, places = sides
    case = reference.Case(x=("f32", x), y=("f32", y))
    for k in places:
        case.expect(f"x / tl.load(y_ptr + {k})", x / y[k], "f32", steps=quotient_steps)
    assert not case.run(run_on_target)


@pytest.mark.gpu
def test_quotients_are_those_of_the_instruction(reference, sides):
    """Divisors that are loaded one by one are divided by as they are."""
    x, y, places = sides
    for k in places:
        apart = np.zeros(SIZE, np.float32)
        same = np.full(SIZE, y[k])
        function = reference.kernel(["r0 = x / y"], {"x": "f32", "y": "f32"}, ["f32"], SIZE)
        RUNNERS["cuda"](function, (1,), [x, same, apart])
        case = reference.Case(x=("f32", x), y=("f32", y))
        case.expect(f"x / tl.load(y_ptr + {k})", apart, "f32")
        assert not case.run(RUNNERS["cuda"])


@pytest.mark.parametrize(
    ("expression", "divisions", "inverses"),
    [
        ("x / tl.load(y_ptr)", 0, 1),
        ("x / tl.sum(y, 0)", 0, 1),
        ("tl.sum(x, 0) / y", 8, 0),
        ("x / y", 8, 0),
        ("tl.sum(x, 0) / tl.sum(y, 0) + x", 1, 0),
        ("tl.reshape(tl.reshape(x, 4, 256) / tl.sum(tl.reshape(y, 4, 256), 1)[:, None], 1024)", 0, 2),
    ],
)
def test_an_inverse_is_for_several_elements(reference, expression, divisions, inverses):
    function = reference.kernel([f"r0 = {expression}"], {"x": "f32", "y": "f32"}, ["f32"], SIZE)
    target, schedule = Target.parse("cuda:90a"), Schedule(num_warps=4)
    ptx = nvptx.emit_ptx(ptx_program(function, target, schedule), target)
    assert len(re.findall(r"div\.full\.f32", ptx)) == divisions
    assert len(re.findall(r"rcp\.approx\.ftz\.f32", ptx)) == inverses
