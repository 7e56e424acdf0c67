"""What kernels and programs ask of types, against NumPy, and launches that would overlap on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import TypeMismatch
from deuteron.language.extra.cuda import gdc


@triton.jit
def limits(x, out):
    low: tl.constexpr = x.dtype.element_ty.get_int_min_value()
    high: tl.constexpr = x.dtype.element_ty.get_int_max_value()
    gdc.gdc_wait()
    tile = tl.load(x + tl.arange(0, 8)[:, None] + tl.arange(0, 4)[None, :])
    tl.extra.cuda.gdc_launch_dependents()
    tl.static_assert(tile.type.numel == 32 and tile.type.nbytes == 32 * x.dtype.element_ty.itemsize)
    tl.static_assert(not tile.dtype.is_const() and tl.TRITON_MAX_TENSOR_NUMEL == 1048576)
    tl.store(out, tl.full((), low, x.dtype.element_ty))
    tl.store(out + 1, tl.full((), high, x.dtype.element_ty))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64, np.int64])
def test_limits_of_integers(launch, dtype):
    _, out = launch(limits, (1,), np.zeros(16, dtype), np.zeros(2, dtype))
    assert out.tolist() == [np.iinfo(dtype).min, np.iinfo(dtype).max]


def test_floats_have_no_largest_integer():
    with pytest.raises(TypeMismatch, match="is a float"):
        tl.float16.get_int_max_value()
    assert tl.int1.get_int_max_value() == 1 and tl.int1.get_int_min_value() == 0


@triton.jit
def printed_types(x, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.static_print(x, o, x + o[:, None], tl.load(x), tl.load(x + o).to(tl.float16), o < 3)


def test_types_print_as_those_of_triton(capsys):
    triton.compile(printed_types, {"x": "*f32"}, {"N": 64}, stop_after="tile")
    shown = ["pointer<fp32>[]", "int32[constexpr[64]]", "pointer<fp32>[constexpr[64], constexpr[1]]", "fp32[]"]
    assert capsys.readouterr().out.strip() == " ".join([*shown, "fp16[constexpr[64]]", "int1[constexpr[64]]"])
