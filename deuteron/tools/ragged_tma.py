"""Ragged descriptors: slices of an array whose bounds the running kernel finds out, such as the rows of each expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deuteron.compiler.errors import LaunchError
from deuteron.compiler.language.ragged import LEADING, atomic_add_ragged, load_ragged, store_ragged
from deuteron.compiler.runtime.arrays.descriptor import TensorDescriptor

__all__ = ["atomic_add_ragged", "create_ragged_descriptor", "load_ragged", "store_ragged"]


def create_ragged_descriptor(T: Any, block_shape: Sequence[int], ragged_dim: int = 0) -> TensorDescriptor:  # noqa: N803
    """The descriptor of an array of two or three dimensions, of which kernels read and write slices along
    ``ragged_dim``: load_ragged, store_ragged and atomic_add_ragged take it.

    ``block_shape``: a size for each dimension of the array; the descriptor's has two dimensions of size 1 before them.

    Raises:
        LaunchError: another number of dimensions, a slice along the last one, or as :class:`TensorDescriptor`.
    """
    whole = TensorDescriptor.from_tensor(T, block_shape)
    rank = len(whole.shape)
    if rank not in (2, 3):
        raise LaunchError(f"a ragged descriptor of an array of {rank} dimensions", hint="it has 2 or 3")
    if not -rank <= ragged_dim < rank or ragged_dim % rank == rank - 1:
        raise LaunchError(
            f"ragged_dim is {ragged_dim}, of an array of {rank} dimensions",
            hint="slices are along a dimension before the last one",
        )
    leading = [whole.strides[0]] * LEADING
    return TensorDescriptor(
        T, [*[1] * LEADING, *whole.shape], [*leading, *whole.strides], [*[1] * LEADING, *whole.block_shape]
    )
