"""Random tile programs, compiled for every target and compared with NumPy.

    python tests/fuzz/tiles.py --programs 5000 [--first SEED] [--jobs N] [--targets tile,cpu,simulated,eager]
    python tests/fuzz/tiles.py --show SEED

A program loads tiles through arbitrary strides and masks, sends them through ten to twenty operations that move,
combine and order elements (permutations, reshapes, joins, sorts, gathers, reductions and scans of every axis, in loops
too) and stores what it made. Values are integers, also those of floating-point tiles, small enough that every order of
additions gives the same result: what differs from NumPy differs in meaning. The suite runs a few dozen
(tests/fuzz/test_tiles.py).
"""

from __future__ import annotations

import argparse
import collections
import linecache
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "development"))  # where the simulator is

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.ir import verify
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target, cpu, interpreter, nvptx
from deuteron.compiler.tile.passes import optimize

TARGETS = ("tile", "cpu", "simulated", "eager")
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


def load(p: Program) -> None:
    dtype = p.rng.choice(list(DTYPES))
    shape = random_shape(p, 2 ** p.rng.randint(2, 9))
    strides = list(packed(shape, permutation(p, len(shape))))
    if p.rng.random() < 0.2:
        strides[p.rng.randrange(len(strides))] = p.rng.choice([0, 1, 3])
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if reach + 600 >= LENGTH:
        return
    start = p.rng.choice([0, 0, 16, 5])
    where, index = offsets(shape, strides), offsets_of(shape, strides)
    at = f"{dtype}_ptr + {start} + pid * 512 + {where}"
    if p.rng.random() < 0.5:
        meaning = lambda v, place: place.inputs[dtype][start + place.program * 512 + index]  # noqa: E731
        p.add(f"tl.load({at})", (shape, dtype), meaning=meaning)
        return
    bound, period = (max(1, reach * p.rng.randint(1, 4) // 3), 10**6) if p.rng.random() < 0.5 else (3, 7)
    text = f"tl.load({at}, mask={where} % {period} < {bound}, other=5)"

    def masked(values: list[Array], place: Place) -> Array:
        read = place.inputs[dtype][start + place.program * 512 + index]
        return np.where(index % period < bound, read, 5).astype(read.dtype)

    p.add(text, (shape, dtype), meaning=masked)


def bounded(p: Program, value: Value) -> Value:
    """The same with values below 32, so that sums and products stay exact."""
    i = value.index
    if is_float(value.dtype):
        text = f"tl.maximum(tl.minimum({value.name}, 31.0), -31.0)"
        return p.add(text, (value.shape, value.dtype), meaning=lambda v, _: np.clip(v[i], -31, 31))
    return p.add(f"{value.name} & 31", (value.shape, value.dtype), meaning=lambda v, _: v[i] & v[i].dtype.type(31))


def elementwise(p: Program) -> None:
    a = pick(p)
    b = a and pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
    if a is None or b is None:
        return
    a, b = bounded(p, a), bounded(p, b)
    i, j = a.index, b.index
    kind = p.rng.choice(["+", "-", "*", "max", "where", "compare"])
    made = (a.shape, a.dtype)
    if kind == "max":
        p.add(f"tl.maximum({a.name}, {b.name})", made, meaning=lambda v, _: np.maximum(v[i], v[j]))
    elif kind == "where":
        text = f"tl.where({a.name} > {b.name}, {a.name}, {b.name} + 1)"
        p.add(text, made, meaning=lambda v, _: np.where(v[i] > v[j], v[i], v[j] + v[j].dtype.type(1)))
    elif kind == "compare":
        p.add(f"({a.name} <= {b.name}).to(tl.{a.dtype})", made, meaning=lambda v, _: (v[i] <= v[j]).astype(v[i].dtype))
    else:
        run = {"+": np.add, "-": np.subtract, "*": np.multiply}[kind]
        p.add(f"{a.name} {kind} {b.name}", made, meaning=lambda v, _: run(v[i], v[j]))


def convert(p: Program) -> None:
    a = pick(p)
    if a is None:
        return
    a = bounded(p, a)
    to, i = p.rng.choice(list(DTYPES)), a.index
    if is_float(a.dtype) and to.startswith("u"):
        return  # of negative numbers undefined
    p.add(f"{a.name}.to(tl.{to})", (a.shape, to), meaning=lambda v, _: v[i].astype(DTYPES[to]))


def reshape(p: Program) -> None:
    a = pick(p)
    if a is None or not a.shape:
        return
    shape, i = random_shape(p, prod(a.shape)), a.index
    text = p.rng.choice(["tl.reshape({}, {})", "{}.reshape({})", "tl.view({}, {})"]).format(a.name, shape)
    p.add(text, (shape, a.dtype), meaning=lambda v, _: v[i].reshape(shape))


def permute(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) > 1)
    if a is None:
        return
    order, i = permutation(p, len(a.shape)), a.index
    text = p.rng.choice(["tl.permute({}, {})", "tl.trans({}, {})"]).format(a.name, order)
    p.add(text, (tuple(a.shape[o] for o in order), a.dtype), meaning=lambda v, _: v[i].transpose(order))


def expand(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) < 4 and prod(v.shape) <= LARGEST // 4)
    if a is None:
        return
    axis, times, i = p.rng.randint(0, len(a.shape)), p.rng.choice([1, 2, 4]), a.index
    shape = (*a.shape[:axis], times, *a.shape[axis:])
    text = f"tl.broadcast_to(tl.expand_dims({a.name}, {axis}), {shape})"
    if not a.shape:
        text = f"tl.full({shape}, {a.name}, tl.{a.dtype})"
    meaning = lambda v, _: np.broadcast_to(np.expand_dims(v[i], axis), shape)  # noqa: E731
    p.add(text, (shape, a.dtype), meaning=meaning)


def join(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and prod(v.shape) <= LARGEST // 2)
    b = a and pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
    if a is None or b is None:
        return
    i, j = a.index, b.index
    kind = p.rng.choice(["join", "interleave", "cat"])
    if kind == "join":
        p.add(f"tl.join({a.name}, {b.name})", ((*a.shape, 2), a.dtype), meaning=lambda v, _: np.stack([v[i], v[j]], -1))
    elif kind == "interleave":
        shape = (*a.shape[:-1], 2 * a.shape[-1])
        meaning = lambda v, _: np.stack([v[i], v[j]], -1).reshape(shape)  # noqa: E731
        p.add(f"tl.interleave({a.name}, {b.name})", (shape, a.dtype), meaning=meaning)
    else:
        axis = p.rng.randrange(len(a.shape))
        shape = tuple(2 * size if n == axis else size for n, size in enumerate(a.shape))
        text = f"tl.cat({a.name}, {b.name}, dim={axis})"
        p.add(text, (shape, a.dtype), meaning=lambda v, _: np.concatenate([v[i], v[j]], axis))


def split(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) > 1 and v.shape[-1] == 2)
    if a is None:
        return
    i, half = a.index, (a.shape[:-1], a.dtype)
    p.add(f"tl.split({a.name})", half, half, meaning=[lambda v, _: v[i][..., 0], lambda v, _: v[i][..., 1]])


def order(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and prod(v.shape) <= 512)
    if a is None:
        return
    i, axis = a.index, p.rng.randrange(len(a.shape))
    kind = p.rng.choice(["flip", "sort", "topk"])
    if kind == "flip":
        p.add(f"tl.flip({a.name}, {axis})", (a.shape, a.dtype), meaning=lambda v, _: np.flip(v[i], axis))
        return
    falling = p.rng.random() < 0.5
    if kind == "sort":

        def in_order(v: list[Array], _: Place) -> Array:
            rising = np.sort(v[i], -1)
            return rising[..., ::-1] if falling else rising

        p.add(f"tl.sort({a.name}, descending={falling})", (a.shape, a.dtype), meaning=in_order)
        return
    k = 2 ** p.rng.randint(0, a.shape[-1].bit_length() - 1)
    made = ((*a.shape[:-1], k), a.dtype)
    p.add(f"tl.topk({a.name}, {k})", made, meaning=lambda v, _: np.sort(v[i], -1)[..., ::-1][..., :k])


def gather(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape))
    if a is None:
        return
    axis, i = p.rng.randrange(len(a.shape)), a.index
    side = a.shape[axis]
    shape = tuple(2 ** p.rng.randint(0, 4) if n == axis else size for n, size in enumerate(a.shape))
    if prod(shape) > LARGEST:
        return
    step = p.rng.choice([1, 3, 5])
    strides = packed(shape, range(len(shape)))
    index = offsets_of(shape, strides) * step % side
    at = f"{offsets(shape, strides)} * {step} % {side}"
    meaning = lambda v, _: np.take_along_axis(v[i], index, axis)  # noqa: E731
    p.add(f"tl.gather({a.name}, {at}, {axis})", (shape, a.dtype), meaning=meaning)


#: How Triton widens small integers before it adds them.
SUMS = {"int16": "int32", "int8": "int32", "uint8": "uint32"}
#: Of 16-bit floats so many may be added that the sum is exact.
FEW = 64


def reduction(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape))
    if a is None:
        return
    a = bounded(p, a)
    i, axis, kept = a.index, p.rng.choice([*range(len(a.shape)), None]), p.rng.random() < 0.4
    over = axis if axis is not None else tuple(range(len(a.shape)))
    gone = {over} if axis is not None else set(over)
    shape = tuple(1 if n in gone else s for n, s in enumerate(a.shape) if kept or n not in gone)
    kind = p.rng.choice(["sum", "max", "min", "arg", "custom", "pair", "with index"])
    options = f"axis={axis}, keep_dims={kept}"
    wide = SUMS.get(a.dtype, a.dtype)
    if kind in ("sum", "pair") and a.dtype == "float16" and prod(a.shape) > FEW:
        return
    if kind == "sum":
        meaning = lambda v, _: v[i].sum(over, keepdims=kept, dtype=DTYPES[wide])  # noqa: E731
        p.add(f"tl.sum({a.name}, {options})", (shape, wide), meaning=meaning)
    elif kind in ("max", "min"):
        run = {"max": np.max, "min": np.min}[kind]
        meaning = lambda v, _: run(v[i], over, keepdims=kept).astype(DTYPES[widest(a)])  # noqa: E731
        p.add(f"tl.{kind}({a.name}, {options})", (shape, widest(a)), meaning=meaning)
    elif axis is None:
        return
    elif kind == "arg":
        name = p.rng.choice(["argmax", "argmin"])
        meaning = lambda v, _: getattr(np, name)(v[i], axis, keepdims=kept).astype(np.int32)  # noqa: E731
        p.add(f"tl.{name}({a.name}, {options})", (shape, "int32"), meaning=meaning)
    elif kind == "with index":
        name = p.rng.choice(["max", "min"])
        best = {"max": np.max, "min": np.min}[name]
        where = {"max": np.argmax, "min": np.argmin}[name]
        p.add(
            f"tl.{name}({a.name}, {options}, return_indices=True)",
            (shape, a.dtype),
            (shape, "int32"),
            meaning=[
                lambda v, _: best(v[i], axis, keepdims=kept),
                lambda v, _: where(v[i], axis, keepdims=kept).astype(np.int32),
            ],
        )
    elif kind == "custom":
        text = f"tl.reduce({a.name}, {axis}, larger, keep_dims={kept})"
        p.add(text, (shape, a.dtype), meaning=lambda v, _: v[i].max(axis, keepdims=kept))
    else:
        b = pick(p, lambda v: v.shape == a.shape)
        if b is None or a.dtype in SUMS:
            return
        j = b.index
        p.add(
            f"tl.reduce(({a.name}, {b.name}), {axis}, both, keep_dims={kept})",
            (shape, a.dtype),
            (shape, b.dtype),
            meaning=[
                lambda v, _: v[i].sum(axis, keepdims=kept, dtype=v[i].dtype),
                lambda v, _: v[j].min(axis, keepdims=kept),
            ],
        )


def widest(value: Value) -> str:
    """max and min without indices give what is small back as 32 bits."""
    return "int32" if value.dtype in SUMS else "float32" if value.dtype == "float16" else value.dtype


def scan(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and v.dtype not in SUMS and not (v.dtype == "float16" and prod(v.shape) > FEW))
    if a is None:
        return
    a = bounded(p, a)
    i, axis, back = a.index, p.rng.randrange(len(a.shape)), p.rng.random() < 0.4

    def along(x: Array, run: Callable[[Array], Array]) -> Array:
        return np.flip(run(np.flip(x, axis)), axis) if back else run(x)

    made = (a.shape, a.dtype)
    kind = p.rng.choice(["cumsum", "max", "recurrence"])
    if kind == "cumsum":
        run = lambda x: np.cumsum(x, axis, dtype=x.dtype)  # noqa: E731
        p.add(f"tl.cumsum({a.name}, {axis}, reverse={back})", made, meaning=lambda v, _: along(v[i], run))
    elif kind == "max":
        text = f"tl.associative_scan({a.name}, {axis}, larger, reverse={back})"
        p.add(text, made, meaning=lambda v, _: along(v[i], lambda x: np.maximum.accumulate(x, axis)))
    elif not is_float(a.dtype):
        b = pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
        if b is None:
            return
        j = b.index

        def recurrence(v: list[Array], part: int) -> Array:
            x, y = np.moveaxis(v[i], axis, 0), np.moveaxis(v[j], axis, 0)
            x, y = (x[::-1].copy(), y[::-1].copy()) if back else (x.copy(), y.copy())
            for n in range(1, len(x)):
                y[n] = y[n - 1] * x[n] + y[n]
                x[n] = x[n - 1] * x[n]
            found = (x, y)[part]
            return np.moveaxis(found[::-1] if back else found, 0, axis)

        p.add(
            f"tl.associative_scan(({a.name}, {b.name}), {axis}, after, reverse={back})",
            made,
            made,
            meaning=[lambda v, _: recurrence(v, 0), lambda v, _: recurrence(v, 1)],
        )


def loop(p: Program) -> None:
    """A tile carried through a loop of three turns that moves its elements."""
    a = pick(p, lambda v: bool(v.shape) and v.dtype in ("int32", "int64", "float32") and prod(v.shape) <= 512)
    if a is None:
        return
    a = bounded(p, a)
    i, axis = a.index, p.rng.randrange(len(a.shape))
    if is_float(a.dtype) and a.shape[axis] > 16:
        return  # sums of sums of sums need their bits
    turn, run = p.rng.choice(
        [
            (f"tl.flip($, {axis}) + i", lambda x, n: np.flip(x, axis) + x.dtype.type(n)),
            (
                f"$ + tl.sum($, {axis}, keep_dims=True) - i",
                lambda x, n: x + x.sum(axis, keepdims=True, dtype=x.dtype) - n,
            ),
            (
                f"$ - tl.max($, {axis}, keep_dims=True) + i",
                lambda x, n: x - x.max(axis, keepdims=True) + x.dtype.type(n),
            ),
            (f"tl.cumsum($, {axis}) * (i + 1)", lambda x, n: np.cumsum(x, axis, dtype=x.dtype) * x.dtype.type(n + 1)),
            (
                f"tl.reshape(tl.trans(tl.reshape($, ({a.shape[0]}, {prod(a.shape[1:])}))), {a.shape}) + i",
                lambda x, n: x.reshape(x.shape[0], -1).T.reshape(x.shape) + x.dtype.type(n),
            ),
        ]
    )

    def turned(v: list[Array], _: Place) -> Array:
        x = v[i]
        for n in range(3):
            x = run(x, n).astype(x.dtype)
        return x

    counter = p.rng.choice(["range(three)", "range(3)", "tl.range(0, three)", "tl.static_range(3)"])
    step = turn.replace("$", "acc")
    step = f"({step}).to(tl.{a.dtype})"
    p.add(f"acc = {a.name}\nfor i in {counter}:\n    acc = {step}\n$ = acc", (a.shape, a.dtype), meaning=turned)


def branch(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape))
    b = a and pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
    if a is None or b is None:
        return
    i, j = a.index, b.index
    text = f"if pid == 1:\n    $ = {a.name}\nelse:\n    $ = {b.name}"
    p.add(text, (a.shape, a.dtype), meaning=lambda v, place: v[i] if place.program == 1 else v[j])


def histogram(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) == 1 and v.dtype == "int32")
    if a is None:
        return
    a = bounded(p, a)
    i = a.index
    p.add(
        f"tl.histogram({a.name}, 32)",
        ((32,), "int32"),
        meaning=lambda v, _: np.bincount(v[i], minlength=32).astype(np.int32),
    )


def product(p: Program) -> None:
    """A product of small integers: exact in every format."""
    a = pick(p, lambda v: len(v.shape) == 2 and v.dtype == "float32" and min(v.shape) >= 16)
    if a is None or prod(a.shape) > 1024:
        return
    a = bounded(p, a)
    i = a.index
    kind = p.rng.choice(["float16", "float32"])
    text = f"tl.dot({a.name}.to(tl.{kind}), tl.trans({a.name}).to(tl.{kind}))"
    side = a.shape[0]
    p.add(text, ((side, side), "float32"), meaning=lambda v, _: v[i] @ v[i].T)


OPERATIONS: tuple[Callable[[Program], None], ...] = (
    *(load, elementwise, elementwise, convert, reshape, reshape, permute, permute, expand, join, join, split, order),
    *(order, gather, reduction, reduction, scan, scan, loop, branch, histogram, product),
)


def generate(seed: int) -> Program:
    """The program of a seed."""
    p = Program(random.Random(seed), seed)
    while len(p.values) < 2:
        load(p)
    wanted = p.rng.randint(8, 20)
    for _ in range(200):
        if len(p.values) >= wanted:
            break
        p.rng.choice(OPERATIONS)(p)
    chosen = {p.values[-1], *p.rng.sample(p.values, min(3, len(p.values)))}
    for value in sorted(chosen, key=lambda value: value.index):
        p.stored.append((value, packed(value.shape, permutation(p, len(value.shape)))))
    p.num_warps, p.arch = p.rng.choice([1, 2, 4, 8]), p.rng.choice(["80", "90a", "120"])
    return p


# Running ------------------------------------------------------------------------------------------------------


def inputs(seed: int) -> dict[str, Array]:
    """Small integers of each type."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0 if name[0] == "u" else -40, 60, LENGTH).astype(kind) for name, kind in DTYPES.items()}


def blank(p: Program) -> list[Array]:
    return [np.full(PROGRAMS * value_size(value), 77, DTYPES[value.dtype]) for value, _ in p.stored]


def expected(p: Program, given: dict[str, Array]) -> list[Array]:
    """What the stores leave, by NumPy."""
    out = blank(p)
    for program in range(PROGRAMS):
        place, values = Place(program, given), list[Array]()
        with np.errstate(over="ignore"):
            for value, (meaning,) in zip(p.values, p.meanings, strict=True):
                found = np.asarray(meaning(values, place))
                assert found.shape == value.shape and found.dtype == DTYPES[value.dtype], (
                    value,
                    found.shape,
                    found.dtype,
                )
                values.append(found)
        for (value, strides), array in zip(p.stored, out, strict=True):
            size = value_size(value)
            array[program * size + offsets_of(value.shape, strides).reshape(-1)] = values[value.index].reshape(-1)
    return out


def signature(p: Program) -> dict[str, str]:
    names = list(SHORT.items()) + [(f"out{i}", SHORT[value.dtype]) for i, (value, _) in enumerate(p.stored)]
    return {**{f"{name}_ptr": f"*{kind}:16" for name, kind in names}, "three": "i32"}


def run(p: Program, target: str, given: dict[str, Array]) -> list[Array]:
    """What the stores leave on a target."""
    out, grid = blank(p), (PROGRAMS, 1, 1)
    arrays: list[Any] = [*(array.copy() for array in given.values()), *out, 3]
    if target == "eager":
        run_eagerly(p, arrays)
        return out
    source = KernelSource.from_text(p.text, "kernel", f"<seed {p.seed}>")
    function = lower(source, signature(p), {})
    if target == "tile":
        verify(function)
        interpreter.run(function, grid, arrays)
    elif target == "cpu":
        code = cpu.lower_to_llvm(function := optimize(function), Schedule())
        kernel = cpu.load(cpu.emit_object(code), code.name)
        types = [parameter.value.type for parameter in function.parameters]
        passed = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arrays]
        kernel.launch(grid, passed, types)
    else:
        from simulator import simulate

        where, schedule = Target.parse(f"cuda:{p.arch}"), Schedule(num_warps=p.num_warps)
        made = nvptx.lower_to_llvm(lower_to_gpu(optimize(function), where, schedule), where, schedule)
        simulate(made.llvm, grid, arrays, made.num_warps, made.shared_bytes)
    return out


def run_eagerly(p: Program, arrays: list[Any]) -> None:
    """Under TRITON_INTERPRET: the kernel's own Python code."""
    import deuteron
    import deuteron.language as tl
    from deuteron.compiler import knobs

    name = f"<eager {p.seed}>"
    text = p.text.replace("import triton.language as tl\n", "").replace("import triton\n", "")
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"triton": deuteron, "tl": tl}
    exec(compile(text, name, "exec"), names)
    with knobs.interpret.scope(True):
        names["kernel"][(PROGRAMS,)](*arrays)


@dataclass(frozen=True)
class Mismatch:
    """A program that a target runs otherwise than NumPy, or refuses."""

    seed: int
    target: str
    what: str


def check(seed: int, targets: tuple[str, ...] = TARGETS) -> list[Mismatch]:
    """Run one program everywhere."""
    p, found = generate(seed), []
    given = inputs(seed)
    wanted = expected(p, given)
    for target in targets:
        try:
            got = run(p, target, given)
        except (DeuteronError, Exception) as error:
            found.append(Mismatch(seed, target, f"{type(error).__name__}: {error}"))
            continue
        for (value, _), have, want in zip(p.stored, got, wanted, strict=True):
            if not np.array_equal(have, want):
                found.append(
                    Mismatch(seed, target, f"WRONG {value.name} in {np.flatnonzero(have != want)[:5].tolist()}")
                )
                break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--show", type=int, metavar="SEED", help="print a program and what happens to it")
    options = parser.parse_args()
    targets = tuple(options.targets.split(","))
    if options.show is not None:
        program = generate(options.show)
        print(program.text, f"# num_warps={program.num_warps}, sm_{program.arch}", sep="\n")
        print(*check(options.show, targets), sep="\n")
        return 0
    began, counts, bad = time.time(), collections.Counter[tuple[str, str]](), 0
    seeds = range(options.first, options.first + options.programs)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for done, found in enumerate(pool.imap_unordered(_check, ((s, targets) for s in seeds), chunksize=4), 1):
            bad += bool(found)
            for mismatch in found:
                counts[mismatch.target, mismatch.what.split("\n")[0][:100]] += 1
            if found and bad <= 20:
                print(found[0], flush=True)
            if done % 200 == 0:
                print(f"{done} programs, {bad} wrong, {time.time() - began:.0f} s", flush=True)
    for (target, what), count in counts.most_common(20):
        print(f"{count:6} {target}: {what}")
    print(f"{options.programs} programs on {', '.join(targets)}: {bad} wrong")
    return 1 if bad else 0


def _check(work: tuple[int, tuple[str, ...]]) -> list[Mismatch]:
    return check(*work)


if __name__ == "__main__":
    sys.exit(main())
