"""Element types under their many names: ours, Triton's, NumPy's and torch's, without importing any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import LaunchError
from ...ir.types import SCALARS, Scalar

if TYPE_CHECKING:
    import numpy as np

#: Names other than our own -> our own. NumPy's names also cover ml_dtypes and (after ``torch.``) torch.
_ALIASES = {
    "fp16": "f16",
    "fp32": "f32",
    "fp64": "f64",
    "fp8e4nv": "f8e4m3",
    "fp8e5": "f8e5m2",
    "u1": "i1",
    "int1": "i1",
    "bool": "i1",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float": "f32",
    "float64": "f64",
    "double": "f64",
    "float8_e4m3fn": "f8e4m3",
    "float8e4nv": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "float8e5": "f8e5m2",
    "float8_e4m3fnuz": "f8e4b8",
    "float8_e5m2fnuz": "f8e5b16",
    **{f"fp8{kind}": f"f8{kind}" for kind in ("e4b8", "e5b16", "e4b15")},
    **{f"float8{kind}": f"f8{kind}" for kind in ("e4b8", "e5b16", "e4b15")},
    **{f"int{b}": f"i{b}" for b in (8, 16, 32, 64)},
    **{f"uint{b}": f"u{b}" for b in (8, 16, 32, 64)},
}

_NUMPY = {ours: numpy for numpy, ours in _ALIASES.items() if numpy not in ("half", "float", "double")}
_NUMPY |= {"i1": "bool", "f16": "float16", "f32": "float32", "f64": "float64"}
_NUMPY |= {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_NUMPY |= {"f8e4b8": "float8_e4m3fnuz", "f8e5b16": "float8_e5m2fnuz", "f8e4b15": "uint8"}
_ML_DTYPES = ("bf16", "f8e4m3", "f8e5m2", "f8e4b8", "f8e5b16")


def known_dtypes() -> str:
    """The names that messages offer."""
    return " ".join(SCALARS)


def canonical_dtype(name: object) -> str:
    """Our name (``f32``) of a dtype given as ours, Triton's, NumPy's or torch's name or object.

    Raises:
        LaunchError: there is no such element type in the kernel language.
    """
    text = str(name).removeprefix("torch.")
    text = _ALIASES.get(text, text)
    if text not in SCALARS:
        raise LaunchError(f"dtype {name} has no counterpart in kernels", hint=f"use {known_dtypes()}")
    return text


def scalar(dtype: str) -> Scalar:
    """The element type that a canonical name stands for."""
    return SCALARS[dtype]


def item_bytes(dtype: str) -> int:
    """Bytes of one element in memory; i1 takes one."""
    return SCALARS[dtype].bytes


def numpy_dtype(dtype: str) -> np.dtype:
    """The NumPy dtype of a canonical name; bf16 and the fp8 formats come from ``ml_dtypes``; f8e4b15, which it
    lacks, is bytes."""
    import numpy as np

    if dtype in _ML_DTYPES:
        import ml_dtypes

        special: np.dtype = np.dtype(getattr(ml_dtypes, _NUMPY[dtype]))
        return special
    return np.dtype(_NUMPY[dtype])
