"""Where the elements of tiles lie: offsets, strides and masks, as text and as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .building import Builder
from .kinds import Array


def along(axis: int, rank: int) -> str:
    """The text that makes a vector a tile along an axis."""
    return "" if rank == 1 else "[" + ", ".join(":" if a == axis else "None" for a in range(rank)) + "]"


def coordinates(axis: int, shape: Sequence[int]) -> Array:
    """The place of each element along an axis, as a tile that broadcasts to ``shape``."""
    return np.arange(shape[axis]).reshape([shape[axis] if a == axis else 1 for a in range(len(shape))])


def random_shape(b: Builder, size: int | None = None) -> tuple[int, ...]:
    """A shape of up to four dimensions; ``size``: its elements."""
    size = min(size or 2 ** b.rng.randint(2, 11), b.limit)
    sides = [1] * b.choose(1, 1, 2, 2, 2, 2, 3, 3, 4)
    while prod(sides) < size:
        axis = b.rng.randrange(len(sides))
        sides[axis if sides[axis] < 1024 else sides.index(min(sides))] *= 2
    return tuple(sides)


def strides_of(b: Builder, shape: Sequence[int]) -> tuple[list[int], int]:
    """Strides in which no two elements meet, with holes now and then, and the length of all."""
    order = b.rng.sample(range(len(shape)), len(shape)) if b.chance(0.5) else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
        if b.chance(0.2):
            step += b.choose(1, 3, 8, 16)
    return strides, step


def offsets(b: Builder, shape: Sequence[int], strides: Sequence[int]) -> tuple[str, Array]:
    """A tile of offsets; some of its strides are arguments."""
    terms, total = [], np.zeros(tuple(shape), np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        total = total + coordinates(axis, shape) * stride
        text = b.number(stride) if b.chance(0.3) else str(stride)
        terms.append(f"tl.arange(0, {size}){along(axis, len(shape))}" + ("" if text == "1" else f" * {text}"))
    return " + ".join(terms), total


def random_mask(b: Builder, shape: tuple[int, ...]) -> tuple[str, Array]:
    """A mask over the places of a tile's elements."""
    rank, style = len(shape), b.choose("bound", "bound", "bounds", "pattern")

    def place(axis: int) -> str:
        return f"(tl.arange(0, {shape[axis]}){along(axis, rank)})"

    if style == "pattern":
        axis, every, kept = b.rng.randrange(rank), b.choose(2, 3, 5), b.choose(1, 2)
        mask = (coordinates(axis, shape) % every < kept) & np.ones(shape, bool)
        return f"({place(axis)} % {every} < {kept}) & ({place(0)} >= 0)", mask
    texts, mask = [], np.ones(shape, bool)
    for axis in [b.rng.randrange(rank)] if style == "bound" else range(rank):
        bound = b.rng.randint(0 if b.chance(0.1) else 1, shape[axis])
        texts.append(f"({place(axis)} < {b.number(bound)})")
        mask = mask & (coordinates(axis, shape) < bound)
    return " & ".join(texts), mask


def listed(items: Sequence[object]) -> str:
    """The text of a tuple."""
    return "(" + ", ".join(map(str, items)) + ",)"
