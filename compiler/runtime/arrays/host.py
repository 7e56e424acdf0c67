"""Arguments of launches as NumPy arrays, for what runs kernels on the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import LaunchError
from .arguments import describe
from .dtypes import canonical_dtype, numpy_dtype
from .reinterpret import Reinterpreted

if TYPE_CHECKING:
    import numpy as np


@contextmanager
def host_array(value: Any) -> Iterator[np.ndarray]:
    """The argument as a NumPy array; arrays on a GPU are copied here and, afterwards, back."""
    import numpy as np

    if isinstance(value, Reinterpreted):
        with host_array(value.base) as array:
            yield array.view(numpy_dtype(value.dtype))
    elif isinstance(value, np.ndarray):
        yield value
    elif hasattr(value, "numpy") and isinstance(value.numpy, np.ndarray):  # HostArray
        yield value.numpy
    elif hasattr(value, "copy_from") and hasattr(value, "to_numpy"):  # CudaArray
        copy = value.to_numpy()
        yield copy
        value.copy_from(copy)
    elif hasattr(value, "data_ptr") and hasattr(value, "cpu"):
        with _torch_array(value) as array:
            yield array
    elif hasattr(value, "__array_interface__"):
        yield np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        yield np.from_dlpack(value)
    else:
        raise LaunchError(f"the interpreter cannot read a {describe(value)}", hint="pass a NumPy array")


@contextmanager
def _torch_array(tensor: Any) -> Iterator[np.ndarray]:
    """A torch tensor's memory as an array, dtypes that NumPy lacks included."""
    torch = sys.modules["torch"]
    tensor = tensor.detach()
    host = tensor.cpu()
    dtype = numpy_dtype(canonical_dtype(tensor.dtype))
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    yield host.view(words).numpy().view(dtype)
    if host is not tensor and host.data_ptr() != tensor.data_ptr():
        tensor.copy_(host)
