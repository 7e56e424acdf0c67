"""What the examples share: where arrays live, and the comparison with a reference.

Kernels take NumPy arrays (CPU target), device arrays, and anything with ``__cuda_array_interface__``, ``__dlpack__`` or
``data_ptr()``; torch tensors work as they are.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.devices import get_device


@dataclass(frozen=True)
class Device:
    """Arrays on ``cpu`` (plain NumPy) or on a GPU such as ``cuda:0``."""

    name: str

    def array(self, x: np.ndarray):
        """``x`` where kernels of this device can read it."""
        return x if self.name == "cpu" else get_device(self.name).array(x)

    def empty(self, shape, dtype: str = "f32"):
        """An array to be filled; it starts as NaN so that an element that is never written shows."""
        return self.array(np.full(shape, np.nan, numpy_dtype(dtype)))

    def numpy(self, x) -> np.ndarray:
        """The contents of an array of this device."""
        return x if isinstance(x, np.ndarray) else x.to_numpy()


def check(what: str, found: np.ndarray, reference: np.ndarray, tolerance: float) -> None:
    """Compare with a float64 reference by the largest error relative to the largest element."""
    error = np.abs(found.astype(np.float64) - reference).max() / np.abs(reference).max()
    if not error <= tolerance:
        raise SystemExit(f"{what}: relative error {error:.2e} is above {tolerance:.0e}")
    print(f"{what}: relative error {error:.1e}")


def device_from_command_line() -> Device:
    """--device cpu (default) or cuda:0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    return Device(parser.parse_args().device)
