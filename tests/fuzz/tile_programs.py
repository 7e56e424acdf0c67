"""A random tile program as it grows: its values, what they mean in NumPy, and its text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

#: Programs of a launch, elements of a tile, elements of an input.
PROGRAMS, LARGEST, LENGTH = 2, 1024, 4096
#: The IR's names of what inputs hold, by the language's names, which are NumPy's too.
SHORT = {
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint32": "u32",
    "uint8": "u8",
    "float32": "f32",
    "float16": "f16",
}
DTYPES = {name: np.dtype(name).type for name in SHORT}

Array = np.ndarray
Meaning = Callable[[list[Array], "Place"], Array]


@dataclass(frozen=True)
class Place:
    """Where a reference runs: the program's number and the inputs by dtype."""

    program: int
    inputs: dict[str, Array]


@dataclass(frozen=True)
class Value:
    """One variable: its name is ``v`` and its index."""

    index: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def name(self) -> str:
        return f"v{self.index}"


@dataclass
class Program:
    """A kernel's text, and what each of its variables is by NumPy."""

    rng: random.Random
    seed: int = 0
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    meanings: list[tuple[Meaning, ...]] = field(default_factory=list)
    stored: list[tuple[Value, tuple[int, ...]]] = field(default_factory=list)
    num_warps: int = 1
    arch: str = "90a"

    def add(self, text: str, *made: tuple[tuple[int, ...], str], meaning: Meaning | Sequence[Meaning]) -> Value:
        """Append ``v_n, ... = text``; ``meaning`` maps all earlier values to the new ones."""
        meanings = (meaning,) if callable(meaning) else tuple(meaning)
        first = len(self.values)
        for shape, dtype in made:
            self.values.append(Value(len(self.values), tuple(shape), dtype))
        names = ", ".join(value.name for value in self.values[first:])
        self.lines.append(text.replace("$", names) if "$" in text else f"{names} = {text}")
        self.meanings.extend([(m,) for m in meanings])
        return self.values[first]

    @property
    def text(self) -> str:
        body = "".join(f"    {line}\n" for block in self.lines for line in block.split("\n"))
        pointers = ", ".join(f"{name}_ptr" for name in (*DTYPES, *(f"out{i}" for i in range(len(self.stored)))))
        stores = "".join(
            f"    tl.store(out{i}_ptr + pid * {value_size(value)} + {offsets(value.shape, strides)}, {value.name})\n"
            for i, (value, strides) in enumerate(self.stored)
        )
        return f"{HELPERS}\n@triton.jit\ndef kernel({pointers}, three):\n    pid = tl.program_id(0)\n{body}{stores}"


HELPERS = """import triton
import triton.language as tl


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def after(a, b, c, d):
    # x -> b + a * x, then x -> d + c * x: the order matters.
    return a * c, b * c + d


@triton.jit
def both(a, b, c, d):
    return a + c, tl.minimum(b, d)

"""


def value_size(value: Value) -> int:
    return prod(value.shape)


def offsets(shape: Sequence[int], strides: Sequence[int]) -> str:
    """The text of a tile of offsets."""
    if not shape:
        return "0"
    terms = []
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        index = (
            "" if len(shape) == 1 else "[" + ", ".join(":" if a == axis else "None" for a in range(len(shape))) + "]"
        )
        terms.append(f"tl.arange(0, {size}){index} * {stride}")
    return "(" + " + ".join(terms) + ")"


def offsets_of(shape: Sequence[int], strides: Sequence[int]) -> Array:
    sides = zip(shape, strides, strict=True)
    steps = [np.arange(size) * stride for size, stride in sides]
    return np.array(sum(np.ix_(*steps), np.zeros(shape, np.int64)))


def packed(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides without holes in which ``order[0]`` is the slowest axis."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    return tuple(strides)


def is_float(dtype: str) -> bool:
    return dtype.startswith("float")


# Operations ---------------------------------------------------------------------------------------------------
# Each draws its operands from the program and appends to it, or returns without a trace when nothing fits.


def pick(p: Program, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
    found = [value for value in p.values if wanted(value)]
    return p.rng.choice(found[-6:] if p.rng.random() < 0.7 else found) if found else None


def permutation(p: Program, rank: int) -> tuple[int, ...]:
    return tuple(p.rng.sample(range(rank), rank))


def random_shape(p: Program, size: int, longest: int = 4) -> tuple[int, ...]:
    """A shape of ``size`` elements, a power of two; some sides are 1."""
    rank = p.rng.randint(1, longest)
    sides = [1] * rank
    while prod(sides) < size:
        sides[p.rng.randrange(rank)] *= 2
    return tuple(sides)
