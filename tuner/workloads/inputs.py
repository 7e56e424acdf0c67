"""Tensors for a problem: random inputs from a seed, poisoned outputs, and what is around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.cpu.device import repeat

from .problem import Problem
from .spec import Tensor
from .widen import count_nan, widened

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import DeviceArray

# Large tensors repeat a random row. Its length is prime, so rows and blocks of a kernel, whose strides are
# multiples of small powers of two, never see the same values at the same place: a wrong offset still shows.
BLOCK = 1_048_573
# Elements of poison: enough that few copies fill a tensor.
_POISON = 1 << 16


@dataclass(frozen=True, eq=False)
class Contents:
    """What a tensor holds before a launch: the elements of ``row`` again and again, in C order."""

    row: np.ndarray
    shape: tuple[int, ...]

    def array(self) -> np.ndarray:
        """A new array of the tensor's shape; C-contiguous."""
        return _repeated(self.row, self.shape)

    def widened(self) -> np.ndarray:
        """:meth:`array` in float64."""
        return _repeated(widened(self.row), self.shape)

    def restore(self, array: DeviceArray) -> None:
        """Overwrite an array of the tensor's shape in a device's memory."""
        if array.nbytes:
            array.fill(self.row)


def _repeated(row: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    import numpy as np

    made = np.empty(shape, row.dtype)
    if made.size:
        repeat(row, made.reshape(-1))
    return made


def draw(problem: Problem, tensor: Tensor, rng: np.random.Generator) -> Contents:
    """The contents of one tensor of the problem, as its ``init`` says."""
    import numpy as np

    dtype = numpy_dtype(problem.tensor_dtype(tensor))
    shape = problem.tensor_shape(tensor)
    count = int(np.prod(shape, dtype=np.int64))
    size = min(count, BLOCK)
    row: np.ndarray
    match tensor.fill:
        case "normal":
            row = rng.standard_normal(size, dtype=np.float32)
        case "uniform":
            row = rng.random(size, dtype=np.float32)
        case "zeros":
            row = np.zeros(size)
        case "arange":
            row = np.arange(count)
        case _:
            row = rng.integers(0, 2 if dtype == np.bool_ else 100, size)
    return Contents(row.astype(dtype), shape)


def poisons(dtype: np.dtype) -> tuple[object, object]:
    """Two values that differ, which outputs of ``dtype`` hold before a launch, in turn: NaN, or of integers one that
    hardly any result is, and another. A result that has the first all the same, as one of truth values has, is
    looked at over the second as well: what holds both was not written."""
    import numpy as np

    if dtype.kind == "b":
        return True, False
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max - 1, limits.min + 1
    return np.nan, 1.0


def count_poison(values: np.ndarray, value: object) -> int:
    """How many elements are one of :func:`poisons`."""
    import numpy as np

    return count_nan(values) if value != value else int(np.count_nonzero(values == value))


def poisoned(problem: Problem, tensor: Tensor, turn: int = 0) -> Contents:
    """An output before the kernel runs; ``turn``: with the first or the second value of :func:`poisons`."""
    import numpy as np

    dtype = numpy_dtype(problem.tensor_dtype(tensor))
    return Contents(np.full(_POISON, poisons(dtype)[turn], dtype), problem.tensor_shape(tensor))


def outside(dtype: np.dtype) -> np.ndarray:
    """What is around tensors of ``dtype`` again and again, as unsigned integers of its size: values that show in what a
    kernel computes from them, in sums as in extrema, and that hardly any kernel stores. NaN, and infinities for those
    that take the larger or the smaller of two; for integers large numbers of both signs."""
    import numpy as np

    bits = np.dtype(f"u{dtype.itemsize}")
    if dtype.kind in "iub":
        return np.frombuffer(b"\xa5" * dtype.itemsize + b"\x5a" * dtype.itemsize, bits)
    infinities = np.array([np.inf, -np.inf]).astype(dtype).view(bits)  # NaN in formats that have none
    nan = np.iinfo(bits).max  # in every format
    return np.array([nan, infinities[0], nan, infinities[1]], bits)


def initial_contents(problem: Problem, seed: int, turn: int = 0) -> dict[str, Contents]:
    """What all tensors of the problem hold, by name. The same seed gives the same values; outputs are poisoned, with
    the value of that ``turn``."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return {
        tensor.name: poisoned(problem, tensor, turn) if tensor.role == "output" else draw(problem, tensor, rng)
        for tensor in problem.spec.tensors
    }


def make_tensors(problem: Problem, seed: int, turn: int = 0) -> dict[str, np.ndarray]:
    """All tensors of the problem by name, on the host; see :func:`initial_contents`."""
    return {name: contents.array() for name, contents in initial_contents(problem, seed, turn).items()}
