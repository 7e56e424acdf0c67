"""A random program over whole ranges of numbers as it grows: what each value is follows from the rules of
``tests/compiler/arithmetic``, which are NumPy's and C's and not the compiler's."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from tile_programs import Array, offsets

_PATH = Path(__file__).resolve().parents[1] / "compiler" / "arithmetic" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("arithmetic_rules", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
rules: Any = sys.modules.setdefault(_SPEC.name, importlib.util.module_from_spec(_SPEC))
_SPEC.loader.exec_module(rules)

KINDS: tuple[str, ...] = rules.NUMBERS
#: Programs of a launch, elements of an input, most elements of a tile.
PROGRAMS, LENGTH, LARGEST = 2, 1024, 512


@dataclass(frozen=True, eq=False)
class Value:
    """A variable: ``array`` has its elements, a row for each program."""

    name: str
    shape: tuple[int, ...]
    kind: str
    array: Array

    def beside(self, shape: tuple[int, ...]) -> Array:
        """The elements as they meet a tile of ``shape``."""
        return self.array if self.shape else self.array.reshape(PROGRAMS, *[1] * len(shape))


class Program:
    """A kernel's text and its variables. ``numbers``: the arguments that are no arrays."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seed = random.Random(seed), seed
        rng = np.random.default_rng(seed)
        self.inputs = {kind: rules.in_memory(rng.permutation(rules.values(kind, LENGTH, rng))) for kind in KINDS}
        self.numbers = {"few": self.rng.choice([3, 5, 7, 17]), "even": self.rng.choice([16, 48, 64])}
        self.numbers["edge"] = self.rng.choice([-5, -16, -1, 1000003, 2**31 - 1, -(2**31)])
        self.lines: list[str] = []
        self.values = [Value(n, (), "i32", np.full(PROGRAMS, k, np.int32)) for n, k in self.numbers.items()]
        self.values.append(Value("pid", (), "i32", np.arange(PROGRAMS, dtype=np.int32)))
        self.stored: list[tuple[Value, tuple[int, ...], Value | None]] = []
        self.num_warps, self.arch = self.rng.choice([1, 2, 4, 8]), self.rng.choice(["90a", "120"])

    def add(self, text: str, shape: Sequence[int], kind: str, array: Array) -> Value:
        """Append ``v_n = text``, of which the type is checked by the compiler."""
        name = f"v{len(self.values)}"
        elements = np.asarray(array).astype(rules.NUMPY[kind]).reshape(PROGRAMS, *shape)
        self.lines += [f"{name} = {text}", f"tl.static_assert({name}.dtype == tl.{rules.SPELLED[kind]}, {name}.dtype)"]
        self.values.append(Value(name, tuple(shape), kind, elements))
        return self.values[-1]

    @property
    def text(self) -> str:
        outs = [f"out{i}" for i in range(len(self.stored))]
        body = [*self.lines]
        for out, (value, strides, mask) in zip(outs, self.stored, strict=True):
            at = f"{out} + pid * {prod(value.shape)} + {offsets(value.shape, strides)}"
            body.append(f"tl.store({at}, {value.name}{f', mask={mask.name}' if mask is not None else ''})")
        parameters = ", ".join([*(f"{kind}_ptr" for kind in KINDS), *outs, *self.numbers])
        lines = "".join(f"    {line}\n" for line in body)
        return f"{HELPERS}\n@triton.jit\ndef kernel({parameters}):\n    pid = tl.program_id(0)\n{lines}"


HELPERS = """import triton
import triton.language as tl


@triton.jit
def first(a, b):
    return tl.where(a != 0, a, b)


@triton.jit
def segmented(a, begins_a, b, begins_b):
    return tl.where(begins_b != 0, b, a + b), begins_a | begins_b

"""


def each(run: Callable[..., Array], *arrays: Array) -> Array:
    """``run``, a function of arrays of one dimension, on arrays of one shape after broadcasting."""
    alike = np.broadcast_arrays(*arrays)
    made = np.asarray(run(*(np.ascontiguousarray(x).reshape(-1) for x in alike)))
    return made.reshape(alike[0].shape)


def together(*values: Value) -> tuple[int, ...] | None:
    """The shape in which values meet; None if they do not, or it is too large."""
    if len({len(value.shape) for value in values if value.shape}) > 1:
        return None
    try:
        shape = np.broadcast_shapes(*(value.shape for value in values))
    except ValueError:
        return None
    return shape if prod(shape) <= LARGEST else None


def computed(operator: str, x: Array, a: str, y: Array, b: str, met: str) -> tuple[Array, str] | None:
    """``x operator y`` and its type; None where the language leaves an element undefined."""
    if not rules.is_float(met) and operator in ("<<", ">>", "//", "%"):
        sides = ((x, a), (y, b))
        left, right = (each(lambda z, k=k: rules.exact_integers(rules.converted(z, k, met)), v) for v, k in sides)
        if operator in ("<<", ">>") and any(not 0 <= n < rules.width(met) for n in right.flat):
            return None
        least = -(1 << rules.width(met) - 1) if rules.is_signed(met) else None
        pairs = zip(*(side.flat for side in np.broadcast_arrays(left, right)), strict=True)
        if operator in ("//", "%") and any(d == 0 or (n == least and d == -1) for n, d in pairs):
            return None
    kinds: list[str] = []

    def run(u: Array, w: Array) -> Array:
        made, kind = rules.operate(operator, u, a, w, b, met)
        kinds.append(kind)
        return made

    return each(run, x, y), kinds[0]


def is_exact(operator: str, met: str | None) -> bool:
    """Whether the result has one value: quotients of f32 are approximate, remainders of floats are libraries'."""
    return met is not None and not (operator == "/" and met != "f64") and not (operator == "%" and rules.is_float(met))
