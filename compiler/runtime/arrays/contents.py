"""Overwriting and restoring the contents of arrays of any library, which autotuning does between launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import LaunchError
from .arguments import describe
from .reinterpret import Reinterpreted


def zero(value: Any) -> None:
    """Set every element to zero; raises LaunchError for what is not an array that can be written."""
    if isinstance(value, Reinterpreted):
        value = value.base
    if hasattr(value, "zero_"):  # torch, CudaArray
        value.zero_()
    elif hasattr(value, "numpy") and not callable(value.numpy):  # HostArray
        value.numpy[...] = 0
    elif hasattr(value, "__setitem__") and hasattr(value, "shape"):
        value[...] = 0
    else:
        raise LaunchError(f"{describe(value)} cannot be set to zero")


def saved(value: Any) -> Callable[[], object]:
    """Copy the contents now; the function returned puts them back."""
    if isinstance(value, Reinterpreted):
        value = value.base
    if hasattr(value, "clone") and hasattr(value, "copy_"):  # torch, CudaArray
        clone = value.clone()
        return lambda: value.copy_(clone)
    if hasattr(value, "to_numpy") and hasattr(value, "copy_from"):
        kept = value.to_numpy()
        return lambda: value.copy_from(kept)
    if hasattr(value, "__setitem__") and hasattr(value, "copy") and hasattr(value, "shape"):
        copy = value.copy()

        def restore() -> None:
            value[...] = copy

        return restore
    raise LaunchError(f"the contents of {describe(value)} cannot be saved")
