"""Which elements of two tiles are one thread's, if some of their coordinates are equal."""

from __future__ import annotations

import itertools
import random

import pytest

from deuteron.compiler.gpu.memory.meetings import _is_one_thread
from deuteron.compiler.ir import Function
from deuteron.compiler.ir.types import F32, Pointer, Tile
from deuteron.compiler.layout import LinearLayout
from deuteron.compiler.tile.access.polynomial import coordinate


def _pointer(layout: LinearLayout):
    return Function("f").add_parameter("p", Tile(Pointer(F32), layout.shape).with_layout(layout))


@pytest.mark.parametrize("seed", range(40))
def test_threads_of_random_layouts(seed) -> None:
    """Layouts are any: bases go along several dimensions, as those of swizzles do."""
    rng = random.Random(seed)
    bits, flat = 6, list[int]()
    while len(flat) < bits:  # independent ones
        basis = rng.randrange(1, 1 << bits) if rng.random() < 0.5 else 1 << rng.randrange(bits)
        if all(basis != a for a in _sums(flat)):
            flat.append(basis)
    registers = rng.randint(1, 4)
    layout = LinearLayout((4, 4, 4), tuple(flat[:registers]), tuple(flat[registers:5]), tuple(flat[5:]))
    holder = {}
    for index in range(1 << bits):
        place = 0
        for bit, basis in enumerate(flat):
            place ^= basis if index >> bit & 1 else 0
        holder[place] = index >> registers
    assert len(holder) == 1 << bits
    for dims in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in range(4)):
        pairs = frozenset((coordinate(dim), coordinate(dim + 3)) for dim in dims)
        groups: dict[tuple[int, ...], set[int]] = {}
        for place, thread in holder.items():
            places = (place >> 4, place >> 2 & 3, place & 3)
            groups.setdefault(tuple(places[dim] for dim in dims), set()).add(thread)
        assert _is_one_thread(_pointer(layout), pairs) == (max(map(len, groups.values())) == 1)


def _sums(bases: list[int]) -> set[int]:
    sums = {0}
    for basis in bases:
        sums |= {value ^ basis for value in sums}
    return sums


CHAIN = """
def kernel(x, n, m):
    i = tl.arange(0, 128)
    o = i
    for _ in tl.static_range(400):
        o = (o + n) * 3 + (o & 1) - m
    tl.store(x + o, i)
    v = tl.load(x + i * n)
    tl.store(x + o + 1, v)
"""


def test_addresses_of_hundreds_of_operations_are_looked_at(to_gpu) -> None:
    """Each is asked for in program order, so that what it is made of is known and nothing is nested deeply."""
    made = to_gpu(CHAIN, {"x": "*i32:16", "n": "i32", "m": "i32"})
    assert any(op.mnemonic == "barrier" for op in made.walk())
