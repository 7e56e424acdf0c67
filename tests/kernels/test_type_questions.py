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


#: Triton's name of each element type, beside the language's.
NAMES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"fp{bits}" for bits in (16, 32, 64)},
    **{f"float8{kind}": f"fp8{kind}" for kind in ("e5", "e5b16", "e4nv", "e4b8", "e4b15")},
    "int1": "int1",
    "bfloat16": "bf16",
}


@pytest.mark.parametrize("spelling", NAMES)
def test_types_have_the_names_of_triton_as_text(spelling):
    type, name = getattr(tl, spelling), NAMES[spelling]
    assert (str(type), type.name, f"{type} {type:}", repr(type)) == (
        name,
        name,
        f"{name} {name}",
        f"triton.language.{spelling}",
    )
    assert tl.dtype(type.name) == type
    pointer = tl.pointer_type(tl.pointer_type(type), const=True)
    assert str(pointer) == repr(pointer) == pointer.name == f"const_pointer<pointer<{name}>>"


@triton.jit
def printed_names(x, T: tl.constexpr):
    tl.static_print("dtype", tl.load(x).dtype, x.dtype, x.dtype.element_ty.name, T, f"{T} {x.dtype.element_ty}")
    tl.static_assert(T.name == "int1", f"{T}")


@pytest.mark.parametrize("interpreted", [False, True])
def test_types_print_in_kernels_as_those_of_triton(capsys, monkeypatch, interpreted):
    monkeypatch.setenv("TRITON_INTERPRET", str(int(interpreted)))
    triton.jit(printed_names.fn)[(1,)](np.zeros(1, np.float16), tl.int1)  # one that was never launched
    assert capsys.readouterr().out == "dtype fp16 pointer<fp16> fp16 int1 int1 fp16\n"
