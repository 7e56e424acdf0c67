"""``reinterpret``: an array whose bytes kernels see as elements of another type."""

from __future__ import annotations

from typing import Any

from ...errors import ArgumentMismatch
from .arguments import describe, pointee, readers
from .dtypes import canonical_dtype


class Reinterpreted:
    """The memory of ``base``, an array of any library, as elements of ``dtype`` (a canonical name such as ``f8e5m2``).

    Everything that is not about the element type is the base's: ``device``, ``shape``, ``data_ptr()``, ``stride()``.
    """

    def __init__(self, base: Any, dtype: object) -> None:
        self.base = base
        self.dtype = canonical_dtype(dtype)

    def __getattr__(self, name: str) -> Any:
        if name == "base":  # not set yet, as in a copy under way
            raise AttributeError(name)
        return getattr(self.base, name)

    def __repr__(self) -> str:
        return f"reinterpret({self.base!r}, {self.dtype})"


def reinterpret(array: Any, dtype: object) -> Any:
    """``array`` with its bytes read and written as elements of ``dtype`` when it is passed to a kernel.

    For element types that the array's library lacks or keeps in another one, such as fp8 numbers in an i8 tensor. The
    sizes are the caller's care: kernels count in elements of ``dtype``. Reinterpreting again starts from the original
    array, and as its own dtype gives the array itself back.

    Raises:
        ArgumentMismatch: ``array`` is not an array.
        LaunchError: ``dtype`` is no element type of the language.
    """
    base = array.base if isinstance(array, Reinterpreted) else array
    wanted = canonical_dtype(dtype)
    key, _ = readers[type(base)](base)
    if not str(key).startswith("*"):
        raise ArgumentMismatch(f"cannot reinterpret {describe(base)}", hint="pass an array")
    return base if pointee(str(key)) == wanted else Reinterpreted(base, wanted)
