"""Tensors for a problem: random inputs from a seed, poisoned outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype

from .problem import Problem
from .spec import Tensor

if TYPE_CHECKING:
    import numpy as np

# Large tensors repeat a random block. Its length is prime, so rows and blocks of a kernel, whose strides are
# multiples of small powers of two, never see the same values at the same place: a wrong offset still shows.
BLOCK = 4_194_301


def make_tensor(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> np.ndarray:
    """One tensor of the problem, filled as its ``init`` says; C-contiguous."""
    import numpy as np

    dtype = numpy_dtype(problem.tensor_dtype(tensor))
    shape = problem.tensor_shape(tensor)
    count = int(np.prod(shape, dtype=np.int64))
    size = min(count, BLOCK)
    block: np.ndarray
    match tensor.fill:
        case "normal":
            block = rng.standard_normal(size, dtype=np.float32)
        case "uniform":
            block = rng.random(size, dtype=np.float32)
        case "zeros":
            return np.zeros(shape, dtype)
        case "arange":
            return np.arange(count).astype(dtype).reshape(shape)
        case _:
            block = rng.integers(0, 2 if dtype == np.bool_ else 100, size)
    block = block.astype(dtype)
    if size == count:
        return block.reshape(shape)
    whole = np.empty(count, dtype)
    for start in range(0, count, size):
        part = whole[start : start + size]
        part[:] = block[: len(part)]
    return whole.reshape(shape)


def poison(array_shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An output before the kernel runs: NaN, or for integers a value that no result is likely to have."""
    import numpy as np

    if dtype.kind in "iu":
        return np.full(array_shape, np.iinfo(dtype).max - 1, dtype)
    if dtype.kind == "b":
        return np.ones(array_shape, dtype)
    if dtype.itemsize == 2:  # whole patterns: bf16 would be filled element by element
        return np.full(array_shape, np.array(np.nan, dtype).view("u2"), "u2").view(dtype)
    return np.full(array_shape, np.nan, dtype)


def make_tensors(problem: Problem, seed: int) -> dict[str, np.ndarray]:
    """All tensors of the problem by name. The same seed gives the same values; outputs are poisoned."""
    import numpy as np

    rng = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for tensor in problem.spec.tensors:
        if tensor.role == "output":
            dtype = numpy_dtype(problem.tensor_dtype(tensor))
            tensors[tensor.name] = poison(problem.tensor_shape(tensor), dtype)
        else:
            tensors[tensor.name] = make_tensor(problem, tensor, rng)
    return tensors
