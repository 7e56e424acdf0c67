"""Random kernels around matrix products, with what they leave behind: the cases of products.py.

A case is a kernel as text, arguments, a grid and a schedule, all drawn from one seed. Inputs are small integers
wherever the arithmetic is then exact, so that a single wrong element shows. They lie in buffers with NaN (or a pattern)
before, between and after their rows; outputs are poisoned, and what lies between their rows must stay as it was.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

HEADER = "import deuteron as triton\nimport deuteron.language as tl\n\n@triton.jit\n"
DTYPES: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
}
NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3": "float8e4nv", "f8e5m2": "float8e5"}
NAMES |= {"i8": "int8", "i32": "int32"}
#: Relative error of one rounding to a type, and a little for what came before it.
ROUNDING = {"f32": 2e-6, "f16": 2**-11 * 1.05, "bf16": 2**-8 * 1.05, "f8e4m3": 2**-4, "f8e5m2": 2**-3, "i32": 0.0}
PATTERN = 0x55


@dataclass
class Buffer:
    """Elements in memory. The kernel gets the address of element ``start`` of ``flat``; element i of the logical array
    is ``flat[start + index[i]]``, all else is poison."""

    dtype: str
    flat: np.ndarray
    start: int
    index: np.ndarray
    strides: tuple[int, ...]

    @property
    def aligned(self) -> bool:
        """Whether the address is a multiple of 16 bytes, as the allocation is."""
        return self.start * self.flat.itemsize % 16 == 0

    def repeated(self) -> Buffer:
        """The same array with its first slice in the place of all: along the first dimension the stride is 0."""
        index = np.broadcast_to(self.index[:1], self.index.shape)
        return Buffer(self.dtype, self.flat, self.start, index, (0, *self.strides[1:]))

    def values(self) -> np.ndarray:
        """The logical array in f64."""
        return self.flat[self.start + self.index].astype(np.float64)


Argument = Buffer | int | float


@dataclass
class Expected:
    """What an output holds afterwards: ``relative`` and ``absolute`` error are allowed."""

    name: str
    values: np.ndarray
    relative: float
    absolute: float = 0.0


@dataclass
class Case:
    """A kernel with everything that a launch takes and what it leaves behind."""

    seed: int
    text: str
    arguments: dict[str, Argument]
    constants: dict[str, object]
    grid: tuple[int, ...]
    schedule: dict[str, int | bool | None]
    expected: list[Expected]
    name: str = "kernel"
    tags: tuple[str, ...] = ()

    def signature(self) -> dict[str, str]:
        """Types of the arguments, as a launch specialises them."""
        return {name: _type_of(value) for name, value in self.arguments.items()}

    def describe(self) -> str:
        """All of it, for people."""
        lines = [f"# seed {self.seed}: {' '.join(self.tags)}", self.text]
        for name, value in self.arguments.items():
            if isinstance(value, Buffer):
                text = f"{_type_of(value)} of {list(value.index.shape)}, strides {list(value.strides)}"
                lines.append(f"# {name}: {text}, from element {value.start}")
            else:
                lines.append(f"# {name} = {value}")
        return "\n".join([*lines, f"# constants {self.constants}", f"# grid {self.grid}, schedule {self.schedule}"])


def _type_of(value: Argument) -> str:
    if isinstance(value, Buffer):
        return f"*{value.dtype}{':16' if value.aligned else ''}"
    if isinstance(value, float):
        return "f32"
    return "i32:1" if value == 1 else "i32:16" if value % 16 == 0 else "i32"


class Draw:
    """Random choices of one case, and the arrays that it makes."""

    def __init__(self, seed: int, large: bool) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.large = large

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, *options):
        return self.rng.choice(options)

    def poisoned(self, dtype: str, count: int) -> np.ndarray:
        """``count`` elements that nobody may read or leave."""
        kind = DTYPES[dtype]
        if dtype[0] == "f" or dtype == "bf16":
            return np.full(count, np.nan, kind)
        return np.full(count * kind.itemsize, PATTERN, np.uint8).view(kind)

    def buffer(
        self, dtype: str, shape: Sequence[int], *, order: Sequence[int] | None = None, aligned: bool = True
    ) -> Buffer:
        """A poisoned array whose dimensions lie in memory in ``order``, outermost first, with gaps between rows.

        ``aligned``: the address and all strides but the innermost are multiples of 16 bytes.
        """
        size = DTYPES[dtype].itemsize
        grain = 16 // size
        order = list(order or range(len(shape)))
        strides, step = [0] * len(shape), 1
        for place, axis in enumerate(reversed(order)):
            strides[axis] = step
            step *= max(1, shape[axis])
            gap = self.pick(0, 0, grain, 3 * grain) if aligned else self.pick(0, 1, 3, grain)
            step += gap
            if aligned:
                step = -(-step // grain) * grain
            elif place == 0 and self.chance(0.5):
                step += 1
        start = (self.pick(0, 0, 4 * grain) if aligned else self.pick(0, 1, 2, grain)) if len(shape) > 1 else 0
        index = sum(
            np.arange(extent).reshape([-1 if d == axis else 1 for d in range(len(shape))]) * stride
            for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True))
        )
        flat = self.poisoned(dtype, start + step + 16 * grain)
        return Buffer(dtype, flat, start, np.asarray(index), tuple(strides))

    def filled(self, dtype: str, shape: Sequence[int], spread: int = 3, **form: object) -> Buffer:
        """A :meth:`buffer` of integers from -``spread`` to ``spread``; of normal numbers where that is 0."""
        made = self.buffer(dtype, shape, **form)  # type: ignore[arg-type]
        if spread:
            values = self.numbers.integers(-spread, spread + 1, shape)
        else:
            values = self.numbers.standard_normal(shape)
        made.flat[made.start + made.index] = values.astype(DTYPES[dtype])
        return made


@dataclass
class Text:
    """Lines of a kernel under construction."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def kernel(self, parameters: Mapping[str, object], constants: Mapping[str, object]) -> str:
        names = [*parameters, *(f"{name}: tl.constexpr" for name in constants)]
        return f"{HEADER}def kernel({', '.join(names)}):\n" + "\n".join(self.lines) + "\n"


def make(seed: int, large: bool = False) -> Case:
    """The case of a seed; ``large``: of a size for a real GPU."""
    from attention_cases import EIGHT_BITS, attention, backward, rows
    from matmul_cases import matmul
    from matmul_operands import GATHERED, MADE

    draw = Draw(seed, large)
    family = draw.rng.choices([matmul, attention, backward, rows], [14, 3, 2, 1])[0]
    if EIGHT_BITS <= seed < MADE:
        family = attention
    elif seed >= GATHERED:
        family = matmul
    return family(seed, draw)


def schedule(draw: Draw, elements: int) -> dict[str, int | bool | None]:
    """Warps (four and more most of the time, for the sake of warp groups), slots, one program for many tiles or not,
    or as the compiler likes.

    ``elements``: of the accumulators. Beyond 256 a thread a case would show nothing new but take very long.
    """
    warps = draw.rng.choices([1, 2, 4, 8, 16], [2, 2, 8, 5, 1 if not draw.large else 2])[0]
    while elements > 256 * 32 * warps and warps < 16:
        warps *= 2
    stages = draw.rng.choices([1, 2, 3, 4, 5, 6], [1, 4, 5, 3, 1, 1])[0]
    return {"num_warps": warps, "num_stages": stages, "persistent": draw.rng.choices([None, False, True], [4, 3, 3])[0]}
