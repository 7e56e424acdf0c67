"""Products of matrices in float64 that a reference takes, on the device, and NumPy's proof that they are right.

The host needs seconds for what is expected of a large product, a GPU with units for float64 some tenths. What a kernel
of ours gives there is not believed: R. Freivalds' check ("Probabilistic machines can use less running time", IFIP 1977)
compares ``c @ x`` with ``a @ (b @ x)`` for random vectors x of -1 and 1, in NumPy, in the time it takes to read the
matrices. Errors in a row show unless they cancel for all vectors; a single one always shows.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime.launch.compiled import CompiledKernel, compile_variant
from deuteron.compiler.runtime.variant.variant import make_variant

from ..measure.gauge import Peaks
from ..workloads.own_kernels import own_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from deuteron.compiler.runtime.device import Device

#: Operations of a product that is worth its transfers: a host takes a fifth of a second for them.
LEAST_OPERATIONS = 1e11
#: Operations per second in float64 of a device that is faster at it than hosts are.
LEAST_RATE = 4e12
#: Operations of one launch, some hundredths of a second; others may want to time something after it.
CHUNK_OPERATIONS = 1e11
#: Of the device's memory, what the three matrices may take.
MEMORY_SHARE = 0.25
BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 16}
_VECTORS = 4


@dataclass(eq=False)
class Multiplier:
    """Takes products on ``device``, each launch in a turn of its own. ``least``: operations of those it takes.
    ``taken``: how many it took that are right."""

    device: Device
    turn: Callable[[], AbstractContextManager[None]]
    least: float = LEAST_OPERATIONS
    taken: int = field(default=0, init=False)

    def of(self, values: np.ndarray) -> np.ndarray:
        """A view of ``values`` whose products with others are taken here."""
        view = values.view(_Multiplied)
        view.multiplier = self
        return view

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """``a @ b`` of float64 matrices; None where the host is to take it: it is small, there is no room for it on the
        device, or what that gave is wrong."""
        (rows, depth), columns = a.shape, b.shape[1]
        memory, needed = self.device.properties.memory_bytes, 8 * (a.size + b.size + rows * columns)
        if 2.0 * rows * columns * depth < self.least or (memory and needed > MEMORY_SHARE * memory):
            return None
        try:
            c = self._taken(np.ascontiguousarray(a), np.ascontiguousarray(b))
        except DeuteronError:  # no memory left; an error that ends the device shows again
            return None
        if not is_product(a, b, c):
            return None
        self.taken += 1
        return c

    def _taken(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        (rows, depth), columns = a.shape, b.shape[1]
        kernel = _compiled(self.device.target, all(size % 16 == 0 for size in (columns, depth)))
        left, right = self.device.array(a), self.device.array(b)
        made = self.device.empty((rows, columns), "f64")
        block_m, block_n = BLOCKS["BLOCK_M"], BLOCKS["BLOCK_N"]
        step = max(1, int(CHUNK_OPERATIONS / (2.0 * columns * depth)) // block_m)
        for first in range(0, -(-rows // block_m), step):
            grid = (-(-columns // block_n), min(step, -(-rows // block_m) - first))
            with self.turn():
                kernel.run(grid, left, right, made, rows, columns, depth, first * block_m, device=self.device)
                self.device.synchronize()
        return made.to_numpy()


def multiplier_for(device: Device, turn: Callable[[], AbstractContextManager[None]]) -> Multiplier | None:
    """One for a device that takes products in float64 faster than hosts do; None for others."""
    rate = Peaks.of(device.properties, 64).plain
    return Multiplier(device, turn) if rate is not None and rate >= LEAST_RATE else None


def is_product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> bool:
    """Whether ``c`` is ``a @ b`` but for rounding, with certainty but for errors that cancel in every vector: each of
    a row's vectors misses those of several elements with a probability of a half at most."""
    vectors = np.random.default_rng().choice([-1.0, 1.0], (b.shape[1], _VECTORS))
    there = b @ vectors
    with np.errstate(invalid="ignore"):
        errors = np.abs(c @ vectors - a @ there).max(initial=0.0)
    # Cauchy and Schwarz bound the sums of a typical row; rounding errs by no more than a unit for each of its terms.
    largest = np.linalg.norm(a) / np.sqrt(max(a.shape[0], 1)) * np.linalg.norm(there, axis=0).max(initial=0.0)
    return bool(errors <= sum(b.shape) * np.finfo(np.float64).eps * largest)


class _Multiplied(np.ndarray):
    """An array whose products are those of a :class:`Multiplier`. All else is NumPy's, and gives plain arrays."""

    multiplier: Multiplier | None = None

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(each) if isinstance(each, _Multiplied) else each for each in inputs]
        multiplier = next(m for each in inputs if isinstance(each, _Multiplied) and (m := each.multiplier))
        if ufunc is np.matmul and method == "__call__" and not options and all(map(_is_matrix, plain)):
            made = multiplier.product(*plain)
            if made is not None:
                return made
        return getattr(ufunc, method)(*plain, **options)

    def __array_finalize__(self, source: object) -> None:
        self.multiplier = getattr(source, "multiplier", None)


def _is_matrix(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype == np.float64


@functools.cache
def _compiled(target: str, aligned: bool) -> CompiledKernel:
    """The kernel, from the cache that all processes share where that has it; ``aligned``: rows begin at multiples of 16
    elements."""
    size = "i32:16" if aligned else "i32"
    pointers = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*f64:16")
    signature = {**pointers, "rows": "i32", "columns": size, "depth": size, "first_row": "i32"}
    return compile_variant(make_variant(own_source("product"), signature, BLOCKS, target, {}))
