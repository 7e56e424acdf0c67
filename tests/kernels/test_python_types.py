"""Dtypes and limits of PyTorch's in kernels, of a module that has its names; tests/compat has the real one."""

from __future__ import annotations

import types

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import LaunchError, TypeMismatch, UnknownName


class dtype:  # noqa: N801 -- PyTorch's own name
    """As PyTorch's: equal to itself alone, and called by its name."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class finfo:  # noqa: N801
    def __init__(self, type: dtype) -> None:
        known = np.finfo(np.float32 if type.itemsize == 4 else np.float16)
        self.max, self.eps, self.bits, self.dtype = float(known.max), float(known.eps), known.bits, type.name


for made in (dtype, finfo):
    made.__module__ = "torch"
torch = types.ModuleType("torch")
torch.float16, torch.float32, torch.finfo, torch.dtype = dtype("float16", 2), dtype("float32", 4), finfo, dtype


@triton.jit
def clipped(x, out, T: tl.constexpr, DEFAULT: tl.constexpr = torch.float16):
    MAX: tl.constexpr = torch.finfo(T).max
    info = torch.finfo(DEFAULT)
    value = tl.minimum(tl.load(x), MAX)
    if torch.float32 == T:
        value = value * 2
    elif T in (torch.float16, torch.float32):
        value = value + info.bits
    tl.static_print(T, f"{T} {info.dtype}", T.itemsize)
    tl.store(out, value)


@pytest.mark.parametrize("type, wanted", [(torch.float16, 65504 + 16), (torch.float32, 131072.0)])
def test_limits_and_comparisons(launch, capsys, type, wanted):
    out = launch(clipped, (1,), np.full(1, 65536, np.float32), np.zeros(1, np.float32), T=type)[1]
    assert out.tolist() == [wanted]
    assert capsys.readouterr().out.splitlines()[0] == f"{type} {type} float16 {type.itemsize}"


def test_dtypes_tell_variants_apart_also_on_disk():
    keys = {
        triton.compile(clipped, {"x": "*fp32", "out": "*fp32"}, {"T": type}, stop_after="tile").metadata.hash
        for type in (torch.float16, torch.float32)
    }
    assert len(keys) == 2


@triton.jit
def converted(x, T: tl.constexpr):
    tl.store(x, tl.load(x).to(T))


@triton.jit
def unknown(x, T: tl.constexpr):
    tl.store(x, torch.finfo(T).largest)


@triton.jit
def other(x, T: tl.constexpr):
    tl.store(x, torch.zeros(T))


torch.zeros = lambda type: 0.0


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (converted, TypeMismatch, "such as tl.float32, got torch.float16"),
        (unknown, UnknownName, "torch.finfo has no attribute 'largest'"),
        (other, UnknownName, "'torch.zeros' is Python"),
    ],
)
def test_nothing_else_of_python_is_reached(kernel, error, message):
    with pytest.raises(error, match=message):
        kernel[(1,)](np.zeros(1, np.float32), T=torch.float16)


def test_values_of_python_classes_are_refused_as_before():
    class Plain:
        pass

    with pytest.raises(LaunchError, match="cannot be a compile-time value"):
        converted[(1,)](np.zeros(1, np.float32), T=Plain())
