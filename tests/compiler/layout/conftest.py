"""Random layouts, and a CTA simulated in plain Python."""

import itertools
import math
import random

import pytest
from hypothesis import strategies as st

from deuteron.compiler.layout import LinearLayout


def shapes(bits):
    """Shapes of rank 1 to 3 with 2**bits elements."""
    return st.lists(st.integers(0, bits), min_size=0, max_size=2).map(
        lambda cuts: tuple(1 << (b - a) for a, b in itertools.pairwise([0, *sorted(cuts), bits]))
    )


@st.composite
def random_layouts(draw, shape=None, lanes=5, warps=None, registers=None, broadcast=True):
    """A surjective layout: random invertible columns plus copies, dealt to random hardware bits."""
    if shape is None:
        shape = draw(shapes(draw(st.integers(4, 10))))
    bits = math.prod(shape).bit_length() - 1
    warp_bits = draw(st.integers(0, 2)) if warps is None else warps
    rng = random.Random(draw(st.integers(0, 2**32)))
    columns = [1 << bit for bit in range(bits)]
    if draw(st.booleans()):
        rng.shuffle(columns)
    for _ in range(draw(st.sampled_from([0, 0, 3, 20]))):
        i, j = rng.randrange(max(1, bits)), rng.randrange(max(1, bits))
        if i != j:
            columns[i] ^= columns[j]
    register_bits = max(0, bits - lanes - warp_bits)
    if broadcast:
        register_bits += draw(st.integers(0, 2))
    if registers is not None:
        register_bits = max(register_bits, registers)
    copies = register_bits + lanes + warp_bits - bits
    zero_only = draw(st.booleans())
    extra = [0 if zero_only else rng.randrange(1 << bits) for _ in range(copies)]
    if draw(st.booleans()):
        columns = columns + extra
        rng.shuffle(columns)
    else:
        columns = columns[:register_bits] + columns[register_bits:] + extra
    return LinearLayout(
        shape,
        tuple(columns[:register_bits]),
        tuple(columns[register_bits : register_bits + lanes]),
        tuple(columns[register_bits + lanes :]),
    )


@pytest.fixture
def layouts():
    """The strategy of random surjective layouts."""
    return random_layouts
