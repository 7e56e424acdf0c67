"""Arrays that are only said to be passed, for warm-ups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlaceholderArray:
    """Stands in a warm-up for an array of ``dtype``, of any library: ``kernel.warmup(PlaceholderArray(torch.float32),
    ...)``. Its address counts as a multiple of 16."""

    dtype: object
    shape: Sequence[int] = (1,)

    def stride(self) -> tuple[int, ...]:
        """Elements from one index to the next, by dimension, of a whole array in row-major order."""
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.append(strides[-1] * size)
        return tuple(reversed(strides))

    def data_ptr(self) -> int:
        """0: there is no memory."""
        return 0

    @staticmethod
    def wrap_dtype(value: object) -> object:
        """A placeholder of a dtype of PyTorch's; anything else as it is."""
        kind = type(value)
        return PlaceholderArray(value) if (kind.__module__, kind.__name__) == ("torch", "dtype") else value
