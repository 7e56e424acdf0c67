"""Tensors for a problem: random inputs from a seed, poisoned outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.cpu.device import repeat

from .problem import Problem
from .spec import Tensor

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import DeviceArray

# Large tensors repeat a random row. Its length is prime, so rows and blocks of a kernel, whose strides are
# multiples of small powers of two, never see the same values at the same place: a wrong offset still shows.
BLOCK = 4_194_301
# Elements of poison: enough that few copies fill a tensor.
_POISON = 1 << 16


@dataclass(frozen=True, eq=False)
class Contents:
    """What a tensor holds before a launch: the elements of ``row`` again and again, in C order."""

    row: np.ndarray
    shape: tuple[int, ...]

    def array(self) -> np.ndarray:
        """A new array of the tensor's shape; C-contiguous."""
        import numpy as np

        made = np.empty(self.shape, self.row.dtype)
        if made.size:
            repeat(self.row, made.reshape(-1))
        return made

    def restore(self, array: DeviceArray) -> None:
        """Overwrite an array of the tensor's shape in a device's memory."""
        if array.nbytes:
            array.fill(self.row)


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


def poison(shape: tuple[int, ...], dtype: np.dtype) -> Contents:
    """An output before the kernel runs: NaN, or for integers a value that no result is likely to have."""
    import numpy as np

    value = np.iinfo(dtype).max - 1 if dtype.kind in "iu" else True if dtype.kind == "b" else np.nan
    return Contents(np.full(_POISON, value, dtype), shape)


def initial_contents(problem: Problem, seed: int) -> dict[str, Contents]:
    """What all tensors of the problem hold, by name. The same seed gives the same values; outputs are poisoned."""
    import numpy as np

    rng = np.random.default_rng(seed)
    contents: dict[str, Contents] = {}
    for tensor in problem.spec.tensors:
        if tensor.role == "output":
            dtype = numpy_dtype(problem.tensor_dtype(tensor))
            contents[tensor.name] = poison(problem.tensor_shape(tensor), dtype)
        else:
            contents[tensor.name] = draw(problem, tensor, rng)
    return contents


def make_tensors(problem: Problem, seed: int) -> dict[str, np.ndarray]:
    """All tensors of the problem by name, on the host; see :func:`initial_contents`."""
    return {name: contents.array() for name, contents in initial_contents(problem, seed).items()}
