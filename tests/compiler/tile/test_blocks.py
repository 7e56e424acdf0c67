"""Block operations: the interpreter's definition, and their expansion to pointers on every target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deuteron.compiler.errors import MemoryAccessError
from deuteron.compiler.ir import Builder, Function, Pointer, Tile, verify
from deuteron.compiler.ir import types as t
from deuteron.compiler.targets.interpreter import run
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile.blocks import BlockLoad, BlockStore
from deuteron.compiler.tile.passes import expand_blocks

SIDE, MARGIN = 24, 8  # of the memory around an array: indices from -8 to 15 along every dimension


@dataclass(frozen=True)
class Box:
    """A box of an array of ``len(sizes)`` dimensions; ``wide``: offsets of 64 bits."""

    shape: tuple[int, ...]
    checked: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    padding: str
    wide: bool

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(SIDE**d for d in reversed(range(len(self.sizes))))

    def function(self) -> Function:
        """Reads the box from x, puts -1 for NaN, and writes to the same place of y what lies within the array."""
        function = Function("copier")
        x, y = (function.add_parameter(name, Tile(Pointer(t.F32))) for name in "xy")
        build = Builder(function.body)
        corner = build.emit(e.Constant(MARGIN * sum(self.strides), Tile(t.I32))).result
        x, y = (build.emit(e.AddPtr(base, corner)).result for base in (x, y))
        scalars = [
            tuple(function.add_parameter(f"{kind}{d}", Tile(type)) for d in range(len(self.sizes)))
            for kind, type in (("n", t.I32), ("s", t.I32), ("o", t.I64 if self.wide else t.I32))
        ]
        box = build.emit(BlockLoad(x, *scalars, self.shape, self.checked, self.padding)).result
        same = build.emit(e.Compare(box, box, "eq")).result
        minus = build.emit(e.Constant(-1.0, box.type)).result
        shown = build.emit(e.Select(same, box, minus)).result
        build.emit(BlockStore(y, *scalars, shown, tuple(1 - c for c in self.checked)))
        return verify(function)

    def arguments(self) -> list[np.ndarray | int]:
        x = np.arange(1, SIDE ** len(self.sizes) + 1, dtype=np.float32)
        return [x, np.full_like(x, 7), *self.sizes, *self.strides, *self.offsets]

    def expected(self) -> np.ndarray:
        """What is in y afterwards, element by element."""
        x, y = (a.reshape((SIDE,) * len(self.sizes)) for a in self.arguments()[:2])
        leading = len(self.sizes) - len(self.shape)
        for place in np.ndindex(*self.shape):
            index = tuple(o + (0, *place)[max(0, d - leading + 1)] for d, o in enumerate(self.offsets))
            inside = [0 <= i < n for i, n in zip(index, self.sizes, strict=True)]
            loaded = all(i for i, c in zip(inside, self.checked, strict=True) if c)
            stored = all(i for i, c in zip(inside, self.checked, strict=True) if not c)
            there = tuple(i + MARGIN for i in index)
            if stored:
                y[there] = x[there] if loaded else -1 if self.padding == "nan" else 0
        return y.reshape(-1)


@st.composite
def boxes(draw) -> Box:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=2)))
    rank = len(shape) + draw(st.integers(0, 3 - len(shape)))
    return Box(
        shape,
        draw(st.tuples(*[st.integers(0, 1)] * rank)),
        draw(st.tuples(*[st.integers(0, 9)] * rank)),
        draw(st.tuples(*[st.integers(-8, 7)] * rank)),
        draw(st.sampled_from(["zero", "nan"])),
        draw(st.booleans()),
    )


@given(box=boxes())
def test_interpreter(box):
    arguments = box.arguments()
    run(box.function(), (1,), arguments)
    np.testing.assert_array_equal(arguments[1], box.expected())


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(box=boxes())
def test_expansion(box, run_on_target):
    function, arguments = verify(expand_blocks(box.function())), box.arguments()
    assert not any(isinstance(op, BlockLoad | BlockStore) for op in function.walk())
    run_on_target(function, (1,), arguments)
    np.testing.assert_array_equal(arguments[1], box.expected())


def test_what_is_not_checked_must_be_there():
    box = Box((8,), (0,), (0,), (12,), "zero", False)
    with pytest.raises(MemoryAccessError, match=r"block_load.*tile index \(4,\): element 24 of x .* is outside"):
        run(box.function(), (1,), box.arguments())


def test_functions_without_blocks_stay_as_they_are():
    function = verify(expand_blocks(Box((8,), (1,), (4,), (0,), "zero", False).function()))
    ops = list(function.body.ops)
    assert expand_blocks(function).body.ops == ops
